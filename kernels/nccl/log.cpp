#include "kernels/nccl/log.hpp"

#include <cstdlib>
#include <string_view>

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

/// One line of the log for each line of a message.
void write(LogLevel level, std::string_view message) {
  while (true) {
    const std::size_t end = message.find('\n');
    writeLog(level, LogSubsystem::Nccl, std::string(message.substr(0, end)));
    if (end == std::string_view::npos) return;
    message.remove_prefix(end + 1);
  }
}

}  // namespace

void log(LogLevel level, const std::string& message) noexcept {
  try {
    static const bool isApplied = applyNcclDebug();
    static_cast<void>(isApplied);
    if (logEnabled(level, LogSubsystem::Nccl)) write(level, message);
  } catch (...) {  // a setting that is not valid: the calls that need one report it
  }
}

void print(const std::string& message) noexcept {
  try {
    write(LogLevel::Info, message);
  } catch (...) {  // out of memory
  }
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
