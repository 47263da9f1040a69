#include "kernels/nccl/log.hpp"

#include <cstdlib>

#include "mscclpp/host/base/env.hpp"

namespace mscclpp::nccl {

namespace {

// Once per process, before the first line.
bool applyNcclDebug() {
  const char* own = std::getenv("MSCCLPP_LOG_LEVEL");
  if (own != nullptr && *own != '\0') return true;
  const std::string& level = env()->ncclDebug;
  if (level == "WARN") setLogLevel(LogLevel::Warn);
  if (level == "INFO" || level == "TRACE") setLogLevel(LogLevel::Info);
  return true;
}

}  // namespace

void log(LogLevel level, const std::string& message) noexcept {
  try {
    static const bool isApplied = applyNcclDebug();
    static_cast<void>(isApplied);
    logMessage(level, LogSubsystem::Nccl, message);
  } catch (...) {  // a setting that is not valid: the calls that need one report it
  }
}

void print(const std::string& message) noexcept {
  writeLog(LogLevel::Info, LogSubsystem::Nccl, message);
}

bool printsVersion() noexcept {
  try {
    const std::string& level = env()->ncclDebug;
    return level == "VERSION" || level == "WARN" || level == "INFO" || level == "TRACE";
  } catch (...) {
    return false;
  }
}

}  // namespace mscclpp::nccl
