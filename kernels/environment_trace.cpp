#include "environment_trace.hpp"

#include <unistd.h>

#include <exception>
#include <filesystem>
#include <string>

#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::kernels {

bool isTraceRequested() {
  return !env()->npkitDumpDir.empty();
}

void requireEnvironmentTraceFolder() {
  if (!isTraceRequested()) return;
  const std::string& folder = env()->npkitDumpDir;
  if (std::filesystem::is_directory(folder) && ::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw Error("MSCCLPP_NPKIT_DUMP_DIR is '" + folder +
                  "', which is not a folder that this process may write to: make the folder, or unset the variable",
              ErrorCode::InvalidUsage);
}

void writeEnvironmentTrace(Trace& trace, int rank) noexcept {
  try {
    const std::filesystem::path folder = env()->npkitDumpDir;
    const std::string name = "trace_rank_" + std::to_string(rank);
    std::filesystem::path path = folder / (name + ".json");
    for (int i = 2; std::filesystem::exists(path); ++i) path = folder / (name + "_" + std::to_string(i) + ".json");
    writeTrace(path.string(), {&trace});
  } catch (const std::exception& error) {
    logMessage(LogLevel::Warn, LogSubsystem::Algo, "cannot write the trace to MSCCLPP_NPKIT_DUMP_DIR: ", error.what());
  }
}

}  // namespace mscclpp::kernels
