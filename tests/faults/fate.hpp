// What can become of a peer, and of the network between it and this process.
#pragma once

#include <linux/filter.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <stdexcept>

#include "host/ranks.hpp"

namespace mscclpp::faults {

enum class Fate { StaysAway, Exits, IsKilled, IsStopped, IsCutOff, IsReset };
inline constexpr std::array fates{Fate::StaysAway, Fate::Exits,    Fate::IsKilled,
                                  Fate::IsStopped, Fate::IsCutOff, Fate::IsReset};

inline const char* nameOf(Fate fate) {
  constexpr std::array names{"stays away", "exits",      "is killed",
                             "is stopped", "is cut off", "has its connections reset"};
  return names[static_cast<std::size_t>(fate)];
}

/// Calls function(descriptor) for each TCP socket of this process. May be used in a signal handler.
template <class Function>
void forEachTcpSocket(const Function& function) {
  for (int fd = 3; fd < 512; ++fd) {
    int domain = 0, type = 0;
    socklen_t size = sizeof(int);
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || (domain != AF_INET && domain != AF_INET6))
      continue;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM) function(fd);
  }
}

/// From now on nothing reaches the TCP sockets that this process has: not a byte, no acknowledgement, no end.
inline void cutNetwork() {
  forEachTcpSocket([](int fd) {
    sock_filter dropAll{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &dropAll};
    ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  });
}

/// Ends the TCP connections of this process as a firewall does: the other side is told by a reset.
inline void resetConnections() {
  forEachTcpSocket([](int fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens != 0) return;
    const sockaddr nowhere{AF_UNSPEC, {}};
    ::connect(fd, &nowhere, sizeof(nowhere));
  });
}

/// A process that does something and then waits for its fate.
class Peer {
 public:
  explicit Peer(const std::function<void()>& body) : done_(makePipe()), child_([&] { live(body); }) {}
  ~Peer() {
    for (const int end : done_) ::close(end);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Returns when it has happened: a process that was killed is dead, one that was stopped stands still.
  void suffer(Fate fate) {
    switch (fate) {
      case Fate::StaysAway:
        return;
      case Fate::Exits:
        child_.kill(SIGTERM);
        return awaitEnd();
      case Fate::IsKilled:
        child_.kill(SIGKILL);
        return awaitEnd();
      case Fate::IsStopped:
        return child_.stop();
      case Fate::IsCutOff:
        child_.kill(SIGUSR1);
        cutNetwork();
        return awaitDone();
      case Fate::IsReset:
        child_.kill(SIGUSR2);
        return awaitDone();
    }
  }

 private:
  using Pipe = std::array<int, 2>;

  static Pipe makePipe() {
    Pipe ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    return ends;
  }

  void live(const std::function<void()>& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    acknowledgement() = done_[1];
    ::signal(SIGTERM, [](int) { ::_exit(0); });  // no destructor says goodbye
    ::signal(SIGUSR1, [](int) {
      cutNetwork();
      acknowledge();
    });
    ::signal(SIGUSR2, [](int) {
      resetConnections();
      acknowledge();
    });
    body();
    while (true) ::pause();
  }

  static int& acknowledgement() {
    static int descriptor = -1;
    return descriptor;
  }
  static void acknowledge() {
    const char byte = 0;
    [[maybe_unused]] const ssize_t count = ::write(acknowledgement(), &byte, 1);
  }
  void awaitDone() const {
    char byte;
    if (::read(done_[0], &byte, 1) != 1) throw std::runtime_error("the peer did not do what a signal asked for");
  }
  void awaitEnd() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(child_.pid()), &info, WEXITED | WNOWAIT) != 0) {
      throw std::runtime_error("waitid");
    }
  }

  Pipe done_;
  test::ChildProcess child_;
};

}  // namespace mscclpp::faults
