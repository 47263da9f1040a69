#include "rank_launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "deadline.hpp"
#include "mscclpp/host/error.hpp"
#include "process_identity.hpp"
#include "unique_fd.hpp"

extern char** environ;

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr int mostRanks = 4096;
// After the first failure the others have this long to notice it and to say what they saw.
constexpr std::chrono::milliseconds noticeTime = 5s;
constexpr std::chrono::milliseconds terminationTime = 2s;
constexpr const char* reportVariable = "MSCCLPP_REPORT_FD";
constexpr int execFailed = 127;

// What a rank writes into the launcher's pipe; less than PIPE_BUF, so that reports of several ranks do not mix.
struct Report {
  std::int32_t rank;
  std::int32_t echo;  // it only echoes another rank's failure
  char text[2048];
};
static_assert(sizeof(Report) <= PIPE_BUF);

// A failure as the launcher sees it, the more telling the smaller the weight.
struct Failure {
  int weight;
  int rank;
  std::string reason;
};

std::string hexText(const Id128& id) {
  std::string text;
  for (std::uint8_t byte : id) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::vector<std::string> environmentOf(int rank, int numRanks, const std::string& job, int reportFd) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(variables, [&](const std::string& variable) { return variable.starts_with(name + '='); });
    variables.push_back(name + '=' + value);
  };
  set("MSCCLPP_RANK", std::to_string(rank));
  set("MSCCLPP_WORLD_SIZE", std::to_string(numRanks));
  set("MSCCLPP_LOCAL_RANK", std::to_string(rank));
  set("MSCCLPP_LOCAL_SIZE", std::to_string(numRanks));
  set("MSCCLPP_JOB", job);
  set(reportVariable, std::to_string(reportFd));
  // A rendezvous address is for ranks that others start; these meet through their launcher's job.
  std::erase_if(variables, [](const std::string& variable) { return variable.starts_with("MSCCLPP_COMM_ID="); });
  return variables;
}

std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class Launch {
 public:
  Launch(int numRanks, const std::vector<std::string>& arguments) : pids_(numRanks, -1) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SysError("cannot make a pipe", errno);
    reports_ = UniqueFd(ends[0]);
    UniqueFd reportTo(ends[1]);
    ::fcntl(reports_.get(), F_SETFL, O_NONBLOCK);
    const std::string job = hexText(randomId());
    for (int rank = 0; rank < numRanks; ++rank) {
      pids_[rank] = start(arguments, environmentOf(rank, numRanks, job, reportTo.get()), reportTo.get());
    }
  }
  // Also when an exception ends the launch half-way: nobody stays behind.
  ~Launch() {
    signalAll(SIGKILL);
    for (pid_t pid : pids_) {
      if (pid > 0) ::waitpid(pid, nullptr, 0);
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  void watch() {
    std::optional<Deadline> patience;
    int nextSignal = SIGTERM;
    while (true) {
      readReports();
      reap();
      if (isOver()) break;
      if (!failures_.empty() && !patience) patience = Deadline::after(noticeTime);
      if (patience && patience->expired()) {
        signalAll(nextSignal);
        nextSignal = SIGKILL;
        patience = Deadline::after(terminationTime);
      }
      pollfd entry{reports_.get(), POLLIN, 0};
      // The pipe says nothing of ranks that end silently, hence a glance now and then. When all ends of it are closed
      // poll returns at once: then the glance is a nap.
      const int ready = ::poll(&entry, 1, 20);
      if (ready > 0 && (entry.revents & POLLIN) == 0) ::poll(nullptr, 0, 20);
    }
    readReports();
    if (failures_.empty()) return;
    const auto first = std::min_element(failures_.begin(), failures_.end(),
                                        [](const Failure& a, const Failure& b) { return a.weight < b.weight; });
    throw Error("rank " + std::to_string(first->rank) + ": " + first->reason, ErrorCode::RemoteError);
  }

 private:
  static pid_t start(std::vector<std::string> arguments, std::vector<std::string> environment, int reportFd) {
    // All memory is taken before the fork: in the child of a program with threads only system calls are safe.
    const std::vector<char*> argv = pointersTo(arguments), envp = pointersTo(environment);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw SysError("cannot start a rank", errno);
    if (pid > 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(execFailed);  // it died before the line above
    ::fcntl(reportFd, F_SETFD, 0);
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(execFailed);
  }

  void readReports() {
    Report report;
    while (true) {
      const ssize_t count = ::read(reports_.get(), &report, sizeof(report));
      if (count < 0 && errno == EINTR) continue;
      if (count != sizeof(report)) return;
      report.text[sizeof(report.text) - 1] = '\0';
      failures_.push_back({report.echo != 0 ? 2 : 1, report.rank, report.text});
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] <= 0 || ::waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = -1;
      if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        // What this launcher did itself explains nothing.
        const int weight = signalled_ ? 4 : 0;
        failures_.push_back({weight, static_cast<int>(rank),
                             "ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")"});
      } else if (WEXITSTATUS(status) == execFailed) {
        failures_.push_back({0, static_cast<int>(rank), "the program could not be started"});
      } else if (WEXITSTATUS(status) != 0) {
        failures_.push_back(
            {3, static_cast<int>(rank), "ended with exit status " + std::to_string(WEXITSTATUS(status))});
      }
    }
  }

  bool isOver() const {
    return std::all_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid <= 0; });
  }

  void signalAll(int signal) {
    for (pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, signal);
    }
    signalled_ = true;
  }

  std::vector<pid_t> pids_;
  UniqueFd reports_;
  std::vector<Failure> failures_;
  bool signalled_ = false;
};

}  // namespace

void launchRanks(int numRanks, const std::vector<std::string>& arguments) {
  if (numRanks < 1 || numRanks > mostRanks) {
    throw Error(
        "the number of ranks must be from 1 to " + std::to_string(mostRanks) + ", not " + std::to_string(numRanks),
        ErrorCode::InvalidUsage);
  }
  if (arguments.empty())
    throw Error("runRanks: the arguments must start with the program's name", ErrorCode::InvalidUsage);
  Launch launch(numRanks, arguments);
  launch.watch();
}

int runLaunchedRank(int rank, const std::function<void()>& body) {
  const char* fdText = std::getenv(reportVariable);
  if (fdText == nullptr) {
    body();
    return 0;
  }
  const int fd = std::atoi(fdText);
  // What this rank starts in turn is not to hold the launcher's pipe.
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  Report report{};
  report.rank = rank;
  try {
    body();
    return 0;
  } catch (const Error& error) {
    report.echo = error.getErrorCode() == ErrorCode::RemoteError ? 1 : 0;
    std::strncpy(report.text, error.what(), sizeof(report.text) - 1);
  } catch (const std::exception& error) {
    std::strncpy(report.text, error.what(), sizeof(report.text) - 1);
  }
  [[maybe_unused]] const ssize_t count = ::write(fd, &report, sizeof(report));
  return 1;
}

}  // namespace mscclpp::detail
