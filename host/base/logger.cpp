#include "mscclpp/host/base/logger.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "host/base/printable_text.hpp"
#include "mscclpp/host/base/env.hpp"

namespace mscclpp {

namespace {

constexpr std::array<std::string_view, 7> subsystemNames = {"ENV", "GPU", "NET", "CONN", "EXEC", "NCCL", "ALGO"};
constexpr unsigned allSubsystems = (1u << subsystemNames.size()) - 1;

constexpr unsigned subsystemBit(LogSubsystem subsystem) {
  return 1u << static_cast<unsigned>(subsystem);
}

// The older variables use NCCL's names; each maps to a subsystem of this library.
constexpr std::pair<std::string_view, LogSubsystem> ncclSubsystemNames[] = {
    {"INIT", LogSubsystem::Conn}, {"COLL", LogSubsystem::Algo},     {"P2P", LogSubsystem::Conn},
    {"SHM", LogSubsystem::Conn},  {"GRAPH", LogSubsystem::Exec},    {"TUNING", LogSubsystem::Algo},
    {"ALLOC", LogSubsystem::Gpu}, {"CALL", LogSubsystem::Nccl},     {"MSCCLPP_EXECUTOR", LogSubsystem::Exec},
    {"NET", LogSubsystem::Net},   {"EXECUTOR", LogSubsystem::Exec}, {"ENV", LogSubsystem::Env},
};

unsigned subsystemOf(std::string_view name) {
  if (name == "ALL") return allSubsystems;
  for (std::size_t i = 0; i < subsystemNames.size(); ++i) {
    if (subsystemNames[i] == name) return 1u << i;
  }
  for (const auto& [ncclName, subsystem] : ncclSubsystemNames) {
    if (ncclName == name) return subsystemBit(subsystem);
  }
  return 0;
}

// "NET,CONN", "^NET" or "" (all); the environment has validated the names already.
unsigned parseSubsystems(std::string_view list) {
  const bool exclude = list.starts_with('^');
  if (exclude) list.remove_prefix(1);
  if (list.empty()) return allSubsystems;
  unsigned mask = 0;
  while (true) {
    const std::size_t comma = list.find(',');
    mask |= subsystemOf(list.substr(0, comma));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return exclude ? allSubsystems & ~mask : mask;
}

LogLevel parseLevel(const Env& environment) {
  if (environment.logLevel == "NONE") return LogLevel::None;
  if (environment.logLevel == "WARN") return LogLevel::Warn;
  if (environment.logLevel == "INFO") return LogLevel::Info;
  if (environment.logLevel == "DEBUG") return LogLevel::Debug;
  if (!environment.logLevel.empty()) return LogLevel::Error;
  if (environment.debug == "WARN") return LogLevel::Warn;
  if (environment.debug == "INFO") return LogLevel::Info;
  if (environment.debug == "TRACE") return LogLevel::Debug;
  return LogLevel::Error;
}

std::string hostName() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

std::string expandPath(const std::string& pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] == '%' && next == 'h') {
      path += hostName();
      ++i;
    } else if (pattern[i] == '%' && next == 'p') {
      path += std::to_string(::getpid());
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

spdlog::level::level_enum toSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warn:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

class Logger {
 public:
  // Never destroyed: threads may still log while static objects are destroyed.
  static Logger& instance() {
    static Logger* logger = new Logger;
    return *logger;
  }

  bool enabled(LogLevel level, LogSubsystem subsystem) const noexcept {
    return level != LogLevel::None && level >= level_.load(std::memory_order_relaxed) &&
           (mask_ & subsystemBit(subsystem)) != 0;
  }

  void setLevel(LogLevel level) noexcept { level_.store(level, std::memory_order_relaxed); }

  void setHandler(LogHandler handler) {
    std::unique_lock lock(handlerMutex_);
    handler_ = std::move(handler);
  }

  void write(LogLevel level, LogSubsystem subsystem, const std::string& text) {
    const std::string message = detail::printableText(text);
    std::shared_lock lock(handlerMutex_);
    if (handler_) {
      handler_(level, subsystem, message);
    } else {
      sink_->log(toSpdlog(level), "{} {}", subsystemNames[static_cast<std::size_t>(subsystem)], message);
    }
  }

 private:
  Logger() {
    // An invalid value or an unwritable file must be reported without failing the job: env() throws where it is called.
    std::string settingsError;
    std::string file;
    try {
      const auto environment = env();
      level_ = parseLevel(*environment);
      mask_ = parseSubsystems(environment->logSubsys.empty() ? environment->debugSubsys : environment->logSubsys);
      file = environment->logFile.empty() ? environment->debugFile : environment->logFile;
      if (!file.empty()) {
        sink_ = std::make_shared<spdlog::logger>("mscclpp",
                                                 std::make_shared<spdlog::sinks::basic_file_sink_mt>(expandPath(file)));
      }
    } catch (const std::exception& error) {
      settingsError = error.what();
    }
    if (!sink_) sink_ = std::make_shared<spdlog::logger>("mscclpp", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    sink_->set_level(spdlog::level::debug);
    sink_->flush_on(spdlog::level::debug);
    sink_->set_pattern("%Y-%m-%dT%H:%M:%S.%e " + hostName() + ":%P:%t mscclpp %l %v");
    if (!settingsError.empty()) sink_->error("the settings of the log are ignored: {}", settingsError);
  }

  std::atomic<LogLevel> level_{LogLevel::Error};
  unsigned mask_ = allSubsystems;
  std::shared_ptr<spdlog::logger> sink_;
  std::shared_mutex handlerMutex_;
  LogHandler handler_;
};

}  // namespace

bool logEnabled(LogLevel level, LogSubsystem subsystem) noexcept {
  try {
    return Logger::instance().enabled(level, subsystem);
  } catch (...) {
    return false;
  }
}

void setLogHandler(LogHandler handler) {
  Logger::instance().setHandler(std::move(handler));
}

void setLogLevel(LogLevel level) noexcept {
  try {
    Logger::instance().setLevel(level);
  } catch (...) {
    // There is no logger, so there is nothing to set.
  }
}

void writeLog(LogLevel level, LogSubsystem subsystem, const std::string& message) noexcept {
  try {
    Logger::instance().write(level, subsystem, message);
  } catch (...) {
    // There is no other place to report this.
  }
}

}  // namespace mscclpp
