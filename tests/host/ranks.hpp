// Runs one body per rank, on threads of this process or in separate processes, and collects the failures.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace mscclpp::test {

/// Seconds. What must not wait for its timeout (30 s by default) ends within this time, on a machine as busy as may be.
inline constexpr double soon = 25;

/// One string per rank: the message of what it threw, or "".
struct Outcomes : std::vector<std::string> {
  using vector::vector;
  /// For the message of a failed comparison.
  friend std::ostream& operator<<(std::ostream& stream, const Outcomes& outcomes) {
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      stream << (rank > 0 ? ", " : "") << "rank " << rank << ": \"" << outcomes[rank] << '"';
    return stream;
  }
};

inline Outcomes onThreads(int numRanks, const std::function<void(int)>& body) {
  Outcomes outcomes(numRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < numRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        outcomes[rank] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

/// A forked child that runs a body; the body's exception is reported through a pipe.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void()>& body) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    std::fflush(nullptr);  // otherwise the child would write its copy of the buffers too
    std::cout.flush();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      std::string outcome;
      try {
        body();
      } catch (const std::exception& error) {
        outcome = error.what();
      }
      if (!outcome.empty() && ::write(ends[1], outcome.data(), outcome.size()) < 0) ::_exit(2);
      ::_exit(outcome.empty() ? 0 : 1);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), pipe_(other.pipe_) {
    other.pid_ = -1;
    other.pipe_ = -1;
  }
  ~ChildProcess() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }

  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  /// Stops the child. Returns when all its threads have stopped: kill() alone does not wait for that.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    while (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status)) {
      if (WIFEXITED(status) || WIFSIGNALED(status)) throw std::runtime_error("the child ended before it was stopped");
    }
  }

  /// Blocks until the child has exited. Returns the message of what it threw; "signal N" if a signal killed it.
  std::string wait() {
    std::string outcome;
    std::array<char, 4096> buffer;
    for (ssize_t count; (count = ::read(pipe_, buffer.data(), buffer.size())) > 0;)
      outcome.append(buffer.data(), count);
    ::close(pipe_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0 && outcome.empty()) return "exit status " + std::to_string(WEXITSTATUS(status));
    return outcome;
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

/// Counts what forked children report. Make it before them.
class Reports {
 public:
  Reports() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  ~Reports() {
    for (const int fd : ends_) ::close(fd);
  }
  void add() const {
    const char byte = 0;
    if (::write(ends_[1], &byte, 1) != 1) throw std::runtime_error("write");
  }
  /// Blocks until `count` more reports were added.
  void wait(int count) const {
    for (char byte; count > 0; --count) {
      if (::read(ends_[0], &byte, 1) != 1) throw std::runtime_error("read");
    }
  }

 private:
  std::array<int, 2> ends_{};
};

inline Outcomes onProcesses(int numRanks, const std::function<void(int)>& body) {
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < numRanks; ++rank) children.emplace_back([&, rank] { body(rank); });
  Outcomes outcomes;
  for (auto& child : children) outcomes.push_back(child.wait());
  return outcomes;
}

/// Whether this kernel supports pidfds.
inline bool hasPidfd() {
  const long descriptor = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  if (descriptor >= 0) ::close(static_cast<int>(descriptor));
  return descriptor >= 0;
}

/// A free TCP port that no other call returns, in this or in another process, while this process lives. It is outside
/// the range from which the kernel gives ports to sockets without one: a socket of another test could get it meanwhile.
/// The UDP port of the same number, which stays bound, tells other processes that the port is taken.
inline int freePort() {
  constexpr int first = 10000, count = 20000;
  std::random_device random;
  const auto bound = [](int type, int port) {
    const int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    ::close(fd);
    return -1;
  };
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int port = first + static_cast<int>(random() % count);
    const int reservation = bound(SOCK_DGRAM, port);
    if (reservation < 0) continue;
    const int listener = bound(SOCK_STREAM, port);
    if (listener < 0) {
      ::close(reservation);
      continue;
    }
    ::close(listener);
    return port;
  }
  throw std::runtime_error("no free port");
}

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The seconds that an error gives behind `marker`; throws if it does not contain that. On a busy machine they are more
/// than the timeout.
inline double secondsBehind(const std::string& marker, const std::string& text) {
  const std::size_t at = text.find(marker);
  if (at == std::string::npos) throw std::runtime_error("\"" + text + "\" does not contain \"" + marker + '"');
  return std::stod(text.substr(at + marker.size()));
}

}  // namespace mscclpp::test
