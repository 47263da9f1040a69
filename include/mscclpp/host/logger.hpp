// The one logger of the host part: levels, subsystems, and where the lines go.
#pragma once

#include <functional>
#include <sstream>
#include <string>

namespace mscclpp {

enum class LogLevel { Debug, Info, Warn, Error, None };

enum class LogSubsystem { Env, Gpu, Net, Conn, Exec, Nccl, Algo };

/// Whether a line of this level and subsystem would be written: MSCCLPP_LOG_LEVEL, _LOG_SUBSYS and _LOG_FILE say what
/// is and where (env.hpp); without them, errors go to stderr. Any thread may call it, and `logMessage`.
bool logEnabled(LogLevel level, LogSubsystem subsystem) noexcept;

/// Receives every line that is enabled, instead of the file or stderr. It may be called by several threads at once.
using LogHandler = std::function<void(LogLevel, LogSubsystem, const std::string& message)>;

/// Replaces the destination of the lines; an empty handler restores it. A line that is being written finishes first.
void setLogHandler(LogHandler handler);

/// Overrides the level of the environment.
void setLogLevel(LogLevel level) noexcept;

/// Writes one line with time, host, process, thread, level and subsystem. Never throws: a log that cannot be written
/// must not break the job.
void writeLog(LogLevel level, LogSubsystem subsystem, const std::string& message) noexcept;

/// Writes its arguments in a row, as `operator<<` prints them; they are not formatted unless the line is enabled.
template <class... Parts>
void logMessage(LogLevel level, LogSubsystem subsystem, const Parts&... parts) {
  if (!logEnabled(level, subsystem)) return;
  std::ostringstream line;
  (line << ... << parts);
  writeLog(level, subsystem, line.str());
}

}  // namespace mscclpp
