#include "host/launch/job_starters.hpp"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "host/base/deadline.hpp"
#include "host/base/process_status.hpp"
#include "host/net/retry.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t maxStarters = 16;
// A shell that has just started this rank may still be running before it waits. On a busy machine this takes a while.
constexpr std::chrono::milliseconds maxTimeToWait = 2s;

std::string procText(pid_t process, const char* file) {
  std::ifstream stream("/proc/" + std::to_string(process) + '/' + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool isNamedFor(pid_t process, const std::string& assignment) {
  for (const char* file : {"environ", "cmdline"}) {
    const std::string text = '\0' + procText(process, file) + '\0';
    if (text.find('\0' + assignment + '\0') != std::string::npos) return true;
  }
  return false;
}

bool hasOtherChild(pid_t process, pid_t child) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || end != name.data() + name.size() || pid == child) continue;
    const auto found = statusOf(pid);
    if (found && found->parent == process) return true;
  }
  return static_cast<bool>(error);
}

// How often the process has been descheduled: unchanged as long as it waits.
std::string contextSwitches(pid_t process) {
  const std::string status = procText(process, "status");
  const auto begin = status.find("voluntary_ctxt_switches:");
  return begin == std::string::npos ? "" : status.substr(begin);
}

// Whether the process waits for its only child, so that it starts no other one as long as that runs.
bool waitsForOnly(pid_t process, pid_t child) {
  const Deadline deadline = Deadline::after(maxTimeToWait);
  const auto isDecided = [&]() -> std::optional<bool> {
    const std::string before = contextSwitches(process);
    const auto status = statusOf(process);
    if (!status || status->threads != 1 || before.empty()) return false;
    // The function of the kernel in which it waits; "0" while it runs, or is about to wait.
    const std::string function = procText(process, "wchan");
    const bool waits = function == "do_wait";
    if (status->state == 'S' && !waits && function != "0") return false;
    if (hasOtherChild(process, child)) return false;
    // If it has not run meanwhile, it has waited for this child all the time.
    const bool isUnchanged = procText(process, "wchan") == function && contextSwitches(process) == before;
    return waits && isUnchanged ? std::optional(true) : std::nullopt;
  };
  return retryUntil(deadline, 20ms, isDecided).value_or(false);
}

}  // namespace

std::vector<pid_t> findJobStarters(const std::string& assignment) {
  std::vector<pid_t> starters;
  pid_t child = ::getpid(), process = ::getppid();
  while (true) {
    starters.push_back(process);
    const auto status = statusOf(process);
    if (starters.size() == maxStarters || !status || status->parent <= 0) return starters;
    const bool startedThisRankOnly =
        isNamedFor(process, assignment) || (status->session != process && waitsForOnly(process, child));
    if (!startedThisRankOnly) return starters;
    child = process;
    process = status->parent;
  }
}

}  // namespace mscclpp::detail
