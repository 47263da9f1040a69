// The logger of the host part: levels, subsystems, and the destination.
#pragma once

#include <functional>
#include <sstream>
#include <string>

namespace mscclpp {

enum class LogLevel { Debug, Info, Warn, Error, None };

enum class LogSubsystem { Env, Gpu, Net, Conn, Exec, Nccl, Algo };

/// Whether a line of this level and subsystem would be written, as set by MSCCLPP_LOG_LEVEL and MSCCLPP_LOG_SUBSYS
/// (env.hpp); by default errors, to stderr or MSCCLPP_LOG_FILE. Any thread may call it and `logMessage`.
bool logEnabled(LogLevel level, LogSubsystem subsystem) noexcept;

/// Receives every enabled line instead of the file or stderr. Several threads may call it at once.
using LogHandler = std::function<void(LogLevel, LogSubsystem, const std::string& message)>;

/// Replaces the destination of the lines; an empty handler restores it. A line that is being written finishes first.
void setLogHandler(LogHandler handler);

/// Overrides the level set by the environment.
void setLogLevel(LogLevel level) noexcept;

/// Writes one line with time, host, process, thread, level and subsystem. Never throws: a failure to write the log must
/// not fail the job.
void writeLog(LogLevel level, LogSubsystem subsystem, const std::string& message) noexcept;

/// Writes its arguments one after another, as `operator<<` prints them; they are not formatted unless the line is
/// enabled.
template <class... Parts>
void logMessage(LogLevel level, LogSubsystem subsystem, const Parts&... parts) {
  if (!logEnabled(level, subsystem)) return;
  std::ostringstream line;
  (line << ... << parts);
  writeLog(level, subsystem, line.str());
}

}  // namespace mscclpp
