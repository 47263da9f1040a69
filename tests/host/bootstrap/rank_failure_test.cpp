// A rank exits, with or without a goodbye, or stops: waits of other ranks for it end within seconds, with an error that
// names it, whichever rank failed first.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/channel/memory_semaphore.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffer.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/expect_rank_failure.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/host/tcp_link.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int failingRank = 2;

}  // namespace

TEST_CASE("the waits for a failed rank end, naming it") {
  runAsProcesses(3, "one process loses a peer");
}
// The failed rank destroys its bootstrap, which sends a goodbye, and its process goes on.
TEST_CASE("the waits for a rank that ended by an exception end at once, naming it") {
  runAsProcesses(3, "one rank unwinds");
}
TEST_CASE("one rank unwinds" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const int rank = rendezvous->getRank();
  const auto leaveTogether = [&] {
    char token = 0;
    for (const int peer : {(rank + 1) % 3, (rank + 2) % 3}) rendezvous->send(&token, 1, peer, 1);
    for (const int peer : {(rank + 1) % 3, (rank + 2) % 3}) rendezvous->recv(&token, 1, peer, 1);
  };
  {
    const auto bootstrap = tcpBootstrapOver(*rendezvous);
    Communicator communicator(bootstrap);
    // Between each pair, with the tag of the pair's sum.
    const auto connect = [&](int peer) {
      return communicator.connect(Transport::SharedMemory, peer, rank + peer).get();
    };
    if (rank == failingRank) {
      const MemoryDevice2DeviceSemaphore kernelSide(communicator, connect(0));
      Host2HostSemaphore hostSide(communicator, connect(1));
      bootstrap->barrier();
      hostSide.signal();  // arrives, though the wait for it comes after the goodbye
    } else if (rank == 0) {
      const MemoryDevice2DeviceSemaphore fromFailing(communicator, connect(failingRank));
      Host2HostSemaphore fromOther(communicator, connect(1));
      auto handle = fromFailing.deviceHandle();
      bootstrap->barrier();
      fromOther.wait(-1);  // longer than the peer's detection: a rank that leaves ends no wait for another
      expectRankFailure("rank 2", [&] {
        CHECK_FALSE(handle.wait());
        communicator.monitor(DeviceType::CPU)->check();
      });
      CHECK_FALSE(bootstrap->failedRank());
    } else {
      Host2HostSemaphore fromFailing(communicator, connect(failingRank));
      Host2HostSemaphore toOther(communicator, connect(0));
      bootstrap->barrier();
      fromFailing.wait(-1);
      expectRankFailure("rank 2", [&] { fromFailing.wait(-1); });
      toOther.signal();
      CHECK_FALSE(bootstrap->failedRank());
    }
    if (rank != failingRank) leaveTogether();
  }
  if (rank == failingRank) leaveTogether();
}
TEST_CASE("one process loses a peer" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const auto bootstrap = tcpBootstrapOver(*rendezvous);
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  // Waits for signals that are never sent: from the rank that fails and from one that does not.
  const auto toFailingRank =
      communicator.connect(Transport::SharedMemory, (rank == failingRank) ? 0 : failingRank, rank == 1 ? 1 : 0);
  if (rank == failingRank) {
    const auto second = communicator.connect(Transport::SharedMemory, 1, 1);
    const MemoryDevice2DeviceSemaphore kernelSide(communicator, toFailingRank.get());
    const Host2HostSemaphore hostSide(communicator, second.get());
    bootstrap->barrier();
    rendezvous->barrier();  // messages that are still queued in the failing rank would be lost
    ::_exit(0);             // no destructor sends a goodbye
  }
  if (rank == 0) {
    const MemoryDevice2DeviceSemaphore semaphore(communicator, toFailingRank.get());
    auto handle = semaphore.deviceHandle();
    bootstrap->barrier();
    rendezvous->barrier();
    expectRankFailure("rank 2", [&] {
      CHECK_FALSE(handle.wait());
      communicator.monitor(DeviceType::CPU)->check();
    });
  } else {
    Host2HostSemaphore semaphore(communicator, toFailingRank.get());
    bootstrap->barrier();
    rendezvous->barrier();
    expectRankFailure("rank 2", [&] { semaphore.wait(-1); });
  }
  expectRankFailure("rank 2", [&] { SymmetricMemory(communicator, 4096, DeviceType::CPU); });
  const HostBuffer buffer(4096);
  expectRankFailure("rank 2", [&] { RegisteredBuffer(communicator, buffer.data(), 4096); });
  expectRankFailure("rank 2", [&] { RegisteredBuffer::tryRegister(communicator, buffer.data(), 4096); });
  expectRankFailure("rank 2", [&] { communicator.recvMemory(failingRank, 9).get(); });
  expectRankFailure("rank 2", [&] { communicator.recvMemory(1 - rank, 9).get(); });
  rendezvous->send(std::vector<char>(1), 1 - rank, 1);  // leave together: leaving early is another case
  std::vector<char> token;
  rendezvous->recv(token, 1 - rank, 1);
}

namespace {

constexpr std::size_t linkBytes = 8;

pid_t processOf(Bootstrap& rendezvous, int rank) {
  std::vector<pid_t> processes(static_cast<std::size_t>(rendezvous.getNranks()), ::getpid());
  rendezvous.allGather(processes.data(), sizeof(pid_t));
  return processes[static_cast<std::size_t>(rank)];
}

void waitForFailure(TcpBootstrap& bootstrap, int rank) {
  char byte;
  expectRankFailure("rank " + std::to_string(rank) + " failed", [&] { bootstrap.recv(&byte, 1, rank, 5); });
}

/// The peer's library may answer some times before the fault takes effect.
void flushUntilThrown(TcpLink& link) {
  while (true) {
    link.update();
    link.connection.flush(60'000'000);
  }
}

}  // namespace

TEST_CASE("a flush to a rank that has left, and no longer answers, ends and names it") {
  runAsProcesses(3, "one rank leaves and is stopped");
}
TEST_CASE("one rank leaves and is stopped" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const int rank = rendezvous->getRank();
  const pid_t leaving = processOf(*rendezvous, 2);
  auto bootstrap = tcpBootstrapOver(*rendezvous);
  auto communicator = std::make_unique<Communicator>(bootstrap);
  if (rank == 2) {
    const TcpLink link(*communicator, 0, linkBytes);
    bootstrap->barrier();
    communicator.reset();
    bootstrap.reset();
    ::raise(SIGSTOP);  // the connection stays open
    return;
  }
  TcpLink toOther(*communicator, 1 - rank, linkBytes);
  if (rank == 0) {
    TcpLink toLeaving(*communicator, 2, linkBytes);
    bootstrap->barrier();
    expectRankFailure("rank 2 has left the job", [&] { flushUntilThrown(toLeaving); });
    CHECK_FALSE(bootstrap->failedRank());
    toOther.update();
    toOther.connection.flush();
    ::kill(leaving, SIGCONT);
  } else {
    bootstrap->barrier();
  }
  bootstrap->groupBarrier({0, 1});
}

TEST_CASE("waits for a rank that failed second end, naming it") {
  runAsProcesses(3, "one rank is killed and another stopped", hangLimit, 1);
}
TEST_CASE("one rank is killed and another stopped" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const int rank = rendezvous->getRank();
  const pid_t stopped = processOf(*rendezvous, 2);
  const auto bootstrap = tcpBootstrapOver(*rendezvous, std::chrono::seconds(5));
  Communicator communicator(bootstrap);
  if (rank == 1) {
    rendezvous->barrier();  // messages that are still queued in the killed rank would be lost
    ::raise(SIGKILL);
  }
  TcpLink link(communicator, 2 - rank, linkBytes);
  Host2HostSemaphore semaphore(communicator, communicator.connect(Transport::SharedMemory, 2 - rank, 1).get());
  rendezvous->barrier();
  waitForFailure(*bootstrap, 1);
  char token = 0;
  if (rank == 2) {
    rendezvous->recv(&token, 1, 0, 1);
    ::raise(SIGSTOP);
    return;
  }
  link.update();
  link.connection.flush();  // rank 2 has not failed yet
  rendezvous->send(&token, 1, 2, 1);
  expectRankFailure("rank 2 failed: nothing was received from it", [&] { flushUntilThrown(link); });
  expectRankFailure("rank 2 failed: nothing was received from it", [&] { semaphore.wait(); });
  CHECK(bootstrap->failedRank() == 1);
  ::kill(stopped, SIGCONT);
}
