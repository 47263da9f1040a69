#include "host/launch/rank_launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "host/base/deadline.hpp"
#include "host/base/error_message.hpp"
#include "host/base/printable_text.hpp"
#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"
#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/host/base/error.hpp"

extern char** environ;

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr int maxRanks = WaitControl::maxLeftRanks;
// After the first failure the other ranks have this long to detect it and to report it.
constexpr std::chrono::milliseconds failureGracePeriod = 5s;
constexpr std::chrono::milliseconds terminationGracePeriod = 2s;
constexpr const char* reportVariable = "MSCCLPP_REPORT_FD";
constexpr int startingFailedStatus = 127;

// A rank's report to the launcher, through a pipe; at most PIPE_BUF bytes, so that reports of several ranks do not
// interleave.
struct Report {
  std::int32_t rank;
  std::int32_t isSecondary;    // a consequence of another rank's failure
  std::int32_t startingError;  // errno if the program could not be started; then there is no text
  char text[2048];
};
static_assert(sizeof(Report) <= PIPE_BUF);

enum class FailureKind { Crash, Report, SecondaryReport, ExitStatus, EndedByLauncher };

struct Failure {
  FailureKind kind;
  int rank;
  std::string reason;
};

// Which of several failures explains the others: the least. A crash and a report are equal: the earlier is the cause.
int priorityOf(const Failure& failure) {
  return std::max(static_cast<int>(failure.kind), static_cast<int>(FailureKind::Report));
}

std::vector<std::string> makeEnvironment(int rank, int numRanks, const std::string& job, int reportFd) {
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
  // A rendezvous address is for ranks that another launcher starts; these connect through MSCCLPP_JOB.
  std::erase_if(variables, [](const std::string& variable) { return variable.starts_with("MSCCLPP_COMM_ID="); });
  return variables;
}

std::vector<char*> makePointerArray(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// While SIGCHLD is ignored, which a process inherits over exec, the system discards the exit status of a child.
class DefaultSigchld {
 public:
  DefaultSigchld() {
    ::sigaction(SIGCHLD, nullptr, &previous_);
    const bool isDiscarded = previous_.sa_handler == SIG_IGN || (previous_.sa_flags & SA_NOCLDWAIT) != 0;
    if (!isDiscarded) return;
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    isReplaced_ = ::sigaction(SIGCHLD, &action, nullptr) == 0;
  }
  ~DefaultSigchld() {
    if (isReplaced_) ::sigaction(SIGCHLD, &previous_, nullptr);
  }
  DefaultSigchld(const DefaultSigchld&) = delete;
  DefaultSigchld& operator=(const DefaultSigchld&) = delete;

 private:
  struct sigaction previous_ {};
  bool isReplaced_ = false;
};

class LaunchedRanks {
 public:
  explicit LaunchedRanks(int numRanks) : pids_(numRanks, -1) {}
  // Also if the launch fails with an exception: no rank is left running.
  ~LaunchedRanks() {
    signalAll(SIGKILL);
    for (pid_t pid : pids_) {
      if (pid > 0) ::waitpid(pid, nullptr, 0);
    }
  }
  LaunchedRanks(const LaunchedRanks&) = delete;
  LaunchedRanks& operator=(const LaunchedRanks&) = delete;

  void start(const std::vector<std::string>& arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SysError("cannot make a pipe", errno);
    reports_ = UniqueFd(ends[0]);
    UniqueFd reportWriteEnd(ends[1]);
    ::fcntl(reports_.get(), F_SETFL, O_NONBLOCK);
    const int numRanks = static_cast<int>(pids_.size());
    const std::string job = hexText(randomId());
    for (int rank = 0; rank < numRanks; ++rank) {
      pids_[rank] =
          spawn(arguments, makeEnvironment(rank, numRanks, job, reportWriteEnd.get()), rank, reportWriteEnd.get());
    }
  }

  void wait() {
    std::optional<Deadline> signalDeadline;
    int nextSignal = SIGTERM;
    while (true) {
      // A rank that reports a consequence of a crash does so after the crash.
      reap();
      readReports();
      if (allExited()) break;
      if (!failures_.empty() && !signalDeadline) signalDeadline = Deadline::after(failureGracePeriod);
      if (signalDeadline && signalDeadline->expired()) {
        signalAll(nextSignal);
        nextSignal = SIGKILL;
        signalDeadline = Deadline::after(terminationGracePeriod);
      }
      pollfd entry{reports_.get(), POLLIN, 0};
      // A rank may end without a report, so wake up every 20 ms. When all write ends are closed poll returns at once.
      const int ready = ::poll(&entry, 1, 20);
      if (ready > 0 && (entry.revents & POLLIN) == 0) ::poll(nullptr, 0, 20);
    }
    readReports();
    if (failures_.empty()) return;
    const auto first = std::min_element(failures_.begin(), failures_.end(), [](const Failure& a, const Failure& b) {
      return priorityOf(a) < priorityOf(b);
    });
    std::string text = describe(*first);
    // The two arrive by different ways, so their order is not certain if they were almost simultaneous.
    const auto other = std::find_if(first + 1, failures_.end(), [&](const Failure& failure) {
      return failure.rank != first->rank && failure.kind != first->kind && priorityOf(failure) == priorityOf(*first);
    });
    if (other != failures_.end()) text += "; then " + describe(*other);
    throw Error(text, ErrorCode::RemoteError);
  }

 private:
  static std::string describe(const Failure& failure) {
    return "rank " + std::to_string(failure.rank) + ": " + printableText(failure.reason);
  }

  static pid_t spawn(std::vector<std::string> arguments, std::vector<std::string> environment, int rank, int reportFd) {
    // All memory is allocated before the fork: in the child of a multi-threaded program only system calls are safe.
    const std::vector<char*> argv = makePointerArray(arguments), envp = makePointerArray(environment);
    Report report{};
    report.rank = rank;
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw SysError("cannot start a rank", errno);
    if (pid > 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(startingFailedStatus);  // the parent ended before prctl
    ::fcntl(reportFd, F_SETFD, 0);
    ::execve("/proc/self/exe", argv.data(), envp.data());
    report.startingError = errno;
    [[maybe_unused]] const ssize_t count = ::write(reportFd, &report, sizeof(report));
    ::_exit(startingFailedStatus);
  }

  void readReports() {
    Report report;
    while (true) {
      const ssize_t count = ::read(reports_.get(), &report, sizeof(report));
      if (count < 0 && errno == EINTR) continue;
      if (count != sizeof(report)) return;
      report.text[sizeof(report.text) - 1] = '\0';
      if (report.startingError != 0) {
        failures_.push_back({FailureKind::Report, report.rank,
                             std::string("the program could not be started: ") + std::strerror(report.startingError)});
        continue;
      }
      failures_.push_back(
          {report.isSecondary != 0 ? FailureKind::SecondaryReport : FailureKind::Report, report.rank, report.text});
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] <= 0) continue;
      int status = 0;
      const pid_t result = ::waitpid(pids_[rank], &status, WNOHANG);
      if (result == 0 || (result < 0 && errno == EINTR)) continue;
      pids_[rank] = -1;
      const auto fail = [&](FailureKind kind, const std::string& reason) {
        failures_.push_back({kind, static_cast<int>(rank), reason});
      };
      if (result < 0) {
        fail(FailureKind::ExitStatus, "ended, and another part of the launching program collected its exit status");
      } else if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        // A signal that this launcher sent is not a cause.
        fail(sentSignal_ ? FailureKind::EndedByLauncher : FailureKind::Crash,
             "ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")");
      } else if (WEXITSTATUS(status) != 0) {
        fail(FailureKind::ExitStatus, "ended with exit status " + std::to_string(WEXITSTATUS(status)));
      }
    }
  }

  bool allExited() const {
    return std::all_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid <= 0; });
  }

  void signalAll(int signal) {
    for (pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, signal);
    }
    sentSignal_ = true;
  }

  DefaultSigchld defaultSigchld_;  // destroyed last, when all ranks have been reaped
  std::vector<pid_t> pids_;
  UniqueFd reports_;
  std::vector<Failure> failures_;
  bool sentSignal_ = false;
};

// For the process that main() belongs to: there is no caller left to throw to.
void printFailure(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, printableText(text).c_str());
}

// The write end of the launcher's pipe; -1 if there is none. Programs that this rank starts must neither hold it open
// nor write to what has its number in them.
int takeReportPipe() {
  const char* text = std::getenv(reportVariable);
  if (text == nullptr) return -1;
  const int fd = std::atoi(text);
  ::unsetenv(reportVariable);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return -1;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace

int launchRanks(int numRanks, const std::vector<std::string>& arguments) {
  if (numRanks < 1 || numRanks > maxRanks) {
    throw Error(
        "the number of ranks must be from 1 to " + std::to_string(maxRanks) + ", not " + std::to_string(numRanks),
        ErrorCode::InvalidUsage);
  }
  if (arguments.empty())
    throw Error("runRanks: the arguments must start with the program's name", ErrorCode::InvalidUsage);
  try {
    LaunchedRanks ranks(numRanks);
    ranks.start(arguments);
    ranks.wait();
    return 0;
  } catch (const std::exception& error) {
    return reportFailure(error);
  }
}

int reportFailure(const std::exception& error) {
  printFailure(messageOf(error));
  return 1;
}

int runRank(int rank, const std::function<void()>& body) {
  static const int fd = takeReportPipe();
  Report report{};
  report.rank = rank;
  std::string reason;
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    report.isSecondary = own != nullptr && own->getErrorCode() == ErrorCode::RemoteError ? 1 : 0;
    reason = error.what();
  } catch (...) {
    reason = "an exception that is not a std::exception";
  }
  reason.copy(report.text, sizeof(report.text) - 1);
  if (fd < 0 || ::write(fd, &report, sizeof(report)) != sizeof(report)) {
    printFailure("rank " + std::to_string(rank) + ": " + reason);
  }
  return 1;
}

}  // namespace mscclpp::detail
