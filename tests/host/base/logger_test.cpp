// The logger: output, destination, and that the level filters before anything is formatted.
#include "mscclpp/host/base/logger.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/host/ranks.hpp"

using namespace mscclpp;

namespace {

struct ThrowsOnFormat {
  friend std::ostream& operator<<(std::ostream&, const ThrowsOnFormat&) { throw std::runtime_error("formatted"); }
};

std::string readAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Logs a few lines in a process with the given environment variables. Returns the content of its log file.
std::string logOf(const std::vector<std::pair<const char*, const char*>>& variables) {
  const auto folder = std::filesystem::temp_directory_path() / ("mscclpp_logger_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  test::ChildProcess child([&] {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    ::setenv("MSCCLPP_LOG_FILE", (folder / "log.%h.%p").c_str(), 1);
    logMessage(LogLevel::Error, LogSubsystem::Net, "net error ", 42);
    logMessage(LogLevel::Warn, LogSubsystem::Net, "net warning");
    logMessage(LogLevel::Info, LogSubsystem::Conn, "conn information");
    logMessage(LogLevel::Debug, LogSubsystem::Gpu, "gpu detail");
  });
  const pid_t pid = child.pid();
  CHECK(child.wait() == "");
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::string text = readAll(folder / ("log." + std::string(host) + '.' + std::to_string(pid)));
  std::filesystem::remove_all(folder);
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

// These cases fork, and must do so before this process has read its own settings: they come first.
TEST_CASE("by default only errors are written, with their subsystem") {
  const std::string text = logOf({});
  CHECK(contains(text, "mscclpp error NET net error 42\n"));
  CHECK_FALSE(contains(text, "warning"));
}

TEST_CASE("level and subsystems filter") {
  std::string text = logOf({{"MSCCLPP_LOG_LEVEL", "INFO"}, {"MSCCLPP_LOG_SUBSYS", "CONN,GPU"}});
  CHECK_FALSE(contains(text, "net"));
  CHECK(contains(text, "mscclpp info CONN conn information"));
  CHECK_FALSE(contains(text, "gpu detail"));
  text = logOf({{"MSCCLPP_LOG_LEVEL", "DEBUG"}, {"MSCCLPP_LOG_SUBSYS", "^CONN"}});
  CHECK(contains(text, "net warning"));
  CHECK_FALSE(contains(text, "conn information"));
  CHECK(contains(text, "gpu detail"));
  CHECK(logOf({{"MSCCLPP_LOG_LEVEL", "NONE"}}) == "");
}

TEST_CASE("the older variables apply where the newer ones are unset") {
  std::string text = logOf({{"MSCCLPP_DEBUG", "WARN"}, {"MSCCLPP_DEBUG_SUBSYS", "NET"}});
  CHECK(contains(text, "net warning"));
  CHECK_FALSE(contains(text, "conn information"));
  text = logOf({{"MSCCLPP_DEBUG", "TRACE"}, {"MSCCLPP_LOG_LEVEL", "ERROR"}});
  CHECK_FALSE(contains(text, "net warning"));
}

TEST_CASE("invalid settings are logged and otherwise ignored") {
  test::ChildProcess child([] {
    ::setenv("MSCCLPP_LOG_LEVEL", "LOUD", 1);
    if (!logEnabled(LogLevel::Error, LogSubsystem::Net)) throw std::runtime_error("errors are lost");
  });
  CHECK(child.wait() == "");
}

TEST_CASE("a handler receives the lines; disabled messages are not formatted") {
  std::vector<std::string> lines;
  setLogHandler([&](LogLevel, LogSubsystem, const std::string& message) { lines.push_back(message); });
  setLogLevel(LogLevel::Warn);
  logMessage(LogLevel::Warn, LogSubsystem::Exec, "one ", 1);
  logMessage(LogLevel::Info, LogSubsystem::Exec, ThrowsOnFormat{});
  setLogLevel(LogLevel::None);
  logMessage(LogLevel::Error, LogSubsystem::Exec, "two");
  CHECK_FALSE(logEnabled(LogLevel::None, LogSubsystem::Exec));
  setLogLevel(LogLevel::Error);
  setLogHandler([](LogLevel, LogSubsystem, const std::string&) { throw std::runtime_error("a careless handler"); });
  logMessage(LogLevel::Error, LogSubsystem::Exec, "three");
  setLogHandler({});
  CHECK(lines == std::vector<std::string>{"one 1"});
}
