// Faults of a peer, and of the network between it and this process.
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

#include "tests/host/ranks.hpp"

namespace mscclpp::faults {

enum class Fault { Absent, Exit, Kill, Unwind, Stop, Partition, Reset };
inline constexpr std::array allFaults{Fault::Absent, Fault::Exit,      Fault::Kill, Fault::Unwind,
                                      Fault::Stop,   Fault::Partition, Fault::Reset};

inline const char* nameOf(Fault fault) {
  constexpr std::array names{
      "stays away", "exits", "is killed", "unwinds", "is stopped", "is cut off", "has its connections reset"};
  return names[static_cast<std::size_t>(fault)];
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

/// From now on the TCP sockets of this process receive nothing: no data, no acknowledgement, no FIN.
inline void cutNetwork() {
  forEachTcpSocket([](int fd) {
    sock_filter dropAll{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &dropAll};
    ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  });
}

/// Ends the TCP connections of this process as a firewall does: the other side gets a reset.
inline void resetConnections() {
  forEachTcpSocket([](int fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens != 0) return;
    const sockaddr unspecified{AF_UNSPEC, {}};
    ::connect(fd, &unspecified, sizeof(unspecified));
  });
}

/// A process that runs `body` and then waits for its fault. `unwind` destroys what `body` has created, as an exception
/// does, in a process that goes on.
class FaultyPeer {
 public:
  explicit FaultyPeer(
      const std::function<void()>& body, const std::function<void()>& unwind = [] {})
      : ackPipe_(makePipe()), unwindPipe_(makePipe()), child_([&] { run(body, unwind); }) {}
  ~FaultyPeer() {
    for (const Pipe& pipe : {ackPipe_, unwindPipe_}) {
      for (const int end : pipe) ::close(end);
    }
  }
  FaultyPeer(const FaultyPeer&) = delete;
  FaultyPeer& operator=(const FaultyPeer&) = delete;

  /// Returns when the fault has taken effect: a killed process has exited, all threads of a stopped one have stopped.
  void inject(Fault fault) {
    switch (fault) {
      case Fault::Absent:
        return;
      case Fault::Exit:
        child_.kill(SIGTERM);
        return waitForExit();
      case Fault::Kill:
        child_.kill(SIGKILL);
        return waitForExit();
      case Fault::Unwind: {
        const char byte = 0;
        if (::write(unwindPipe_[1], &byte, 1) != 1) throw std::runtime_error("write");
        return waitForAck();
      }
      case Fault::Stop:
        return child_.stop();
      case Fault::Partition:
        child_.kill(SIGUSR1);
        cutNetwork();
        return waitForAck();
      case Fault::Reset:
        child_.kill(SIGUSR2);
        return waitForAck();
    }
  }

 private:
  using Pipe = std::array<int, 2>;

  static Pipe makePipe() {
    Pipe ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    return ends;
  }

  void run(const std::function<void()>& body, const std::function<void()>& unwind) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ackDescriptor() = ackPipe_[1];
    ::signal(SIGTERM, [](int) { ::_exit(0); });  // no destructor sends a goodbye
    ::signal(SIGUSR1, [](int) {
      cutNetwork();
      acknowledge();
    });
    ::signal(SIGUSR2, [](int) {
      resetConnections();
      acknowledge();
    });
    body();
    char byte;
    if (::read(unwindPipe_[0], &byte, 1) == 1) {
      unwind();
      acknowledge();
    }
    while (true) ::pause();
  }

  static int& ackDescriptor() {
    static int descriptor = -1;
    return descriptor;
  }
  static void acknowledge() {
    const char byte = 0;
    [[maybe_unused]] const ssize_t count = ::write(ackDescriptor(), &byte, 1);
  }
  void waitForAck() const {
    char byte;
    if (::read(ackPipe_[0], &byte, 1) != 1) throw std::runtime_error("the peer did not do what a signal asked for");
  }
  void waitForExit() const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(child_.pid()), &info, WEXITED | WNOWAIT) != 0) {
      throw std::runtime_error("waitid");
    }
  }

  Pipe ackPipe_;
  Pipe unwindPipe_;
  test::ChildProcess child_;
};

}  // namespace mscclpp::faults
