// Ranks that wait for others: without polling, until one ends, the rendezvous is aborted or its time is over.
#include "host/bootstrap/rendezvous.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;

namespace {

std::atomic<int> pollCalls = 0;

}  // namespace

extern "C" int poll(pollfd* entries, nfds_t count, int milliseconds) {
  ++pollCalls;
  const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000L};
  return ::ppoll(entries, count, milliseconds < 0 ? nullptr : &limit, nullptr);
}

namespace {

/// A rank that initializes on a thread of its own.
class Rank {
 public:
  Rank(int rank, int numRanks, const UniqueId& id, int timeoutSec)
      : bootstrap_(std::make_unique<TcpBootstrap>(rank, numRanks)), thread_([this, id, timeoutSec] {
          try {
            bootstrap_->initialize(id, timeoutSec);
          } catch (const Error& error) {
            text_ = error.what();
          }
          hasEnded_ = true;
        }) {}
  ~Rank() {
    if (thread_.joinable()) thread_.join();
  }
  TcpBootstrap& bootstrap() { return *bootstrap_; }
  bool hasEnded() const { return hasEnded_; }
  /// What it threw.
  std::string wait() {
    thread_.join();
    return text_;
  }

 private:
  std::unique_ptr<TcpBootstrap> bootstrap_;
  std::string text_;
  std::atomic<bool> hasEnded_ = false;
  std::thread thread_;
};

/// Waits until the ranks have connected and wait: this process has called poll `calls` times or more since `pollCalls`
/// was reset, and not for a while. At most 60 s.
void awaitQuiet(int calls) {
  const auto start = std::chrono::steady_clock::now();
  int before = -1;
  while ((before != pollCalls || before < calls) && test::secondsSince(start) < 60) {
    before = pollCalls;
    std::this_thread::sleep_for(300ms);
  }
}

}  // namespace

TEST_CASE("ranks that wait for another do not wake up until their time is over") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  pollCalls = 0;
  Rank rank0(0, 3, id, 5), rank1(1, 3, id, 5);
  awaitQuiet(3);
  CHECK_FALSE(rank0.hasEnded());
  pollCalls = 0;
  CHECK(rank0.wait().find("rank 2 of 3 is missing") != std::string::npos);
  CHECK(rank1.wait().find("not all ranks arrived") != std::string::npos);
  CHECK(pollCalls < 40);
}

TEST_CASE("an abort ends the wait of each rank for another") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto start = std::chrono::steady_clock::now();
  pollCalls = 0;
  Rank rank0(0, 3, id, 300), rank1(1, 3, id, 300);
  awaitQuiet(3);
  CHECK_FALSE(rank0.hasEnded());
  CHECK_FALSE(rank1.hasEnded());
  CHECK(rank1.bootstrap().abortBlocked());
  CHECK(rank1.wait().find("rank 1, initialize: the communication was aborted") != std::string::npos);
  CHECK(rank0.wait().find("rank 1 ended or timed out while other ranks were missing") != std::string::npos);

  const UniqueId other = TcpBootstrap::createUniqueId();
  pollCalls = 0;
  Rank otherRank0(0, 3, other, 300), otherRank1(1, 3, other, 300);
  awaitQuiet(3);
  otherRank0.bootstrap().abort();
  CHECK(otherRank0.wait().find("rank 0, initialize: the communication was aborted") != std::string::npos);
  CHECK(otherRank1.wait().find("rank 0 ended the rendezvous: ") != std::string::npos);
  CHECK(test::secondsSince(start) < 120);
}

TEST_CASE("rank 0 notices at once that a rank which waits has ended") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto start = std::chrono::steady_clock::now();
  pollCalls = 0;
  test::ChildProcess rank1([&] { TcpBootstrap(1, 3).initialize(id, 300); });
  Rank rank0(0, 3, id, 300);
  awaitQuiet(2);
  rank1.kill(SIGKILL);
  CHECK(rank1.wait() == "signal 9");
  CHECK(rank0.wait().find("rank 1 ended or timed out while other ranks were missing") != std::string::npos);
  CHECK(test::secondsSince(start) < 120);
}
