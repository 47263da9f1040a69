// TcpBootstrap under faults: ranks that fail, stop, do not arrive or send false data, and unauthenticated clients.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;
using test::onThreads;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expectContains(const std::string& text, const std::string& part) {
  if (!contains(text, part)) throw std::runtime_error("\"" + text + "\" does not contain \"" + part + "\"");
}

// Runs `call`, which must throw Error(code) with `part` in its text, and soon.
void expectError(ErrorCode code, const std::string& part, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
  } catch (const Error& error) {
    expectContains(error.what(), part);
    if (error.getErrorCode() != code) throw std::runtime_error(std::string("another code: ") + error.what());
    const double seconds = test::secondsSince(start);
    if (seconds > test::soon) throw std::runtime_error("it took " + std::to_string(seconds) + " s");
    return;
  }
  throw std::runtime_error("nothing was thrown where \"" + part + "\" was expected");
}

// A process that waits to be killed.
void waitForKill() {
  while (true) ::pause();
}

std::string loopback() {
  return "127.0.0.1:" + std::to_string(test::freePort());
}

// A raw connection of an unauthenticated client.
class RawClient {
 public:
  explicit RawClient(int port, int attempts = 3000, in_addr_t where = INADDR_LOOPBACK)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(where);
    for (int i = 0; i < attempts; ++i) {
      if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return;
      std::this_thread::sleep_for(10ms);
    }
    throw std::runtime_error("nothing listens");
  }
  RawClient(RawClient&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~RawClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  void send(const std::string& bytes) const {
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;  // already disconnected
  }

 private:
  int fd_;
};

}  // namespace

TEST_CASE("a killed rank is named by every other rank, whatever it waits for") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::Reports leftBarrier;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 5; ++rank) {
    ranks.emplace_back([&, rank] {
      auto bootstrap = std::make_unique<TcpBootstrap>(rank, 5);
      bootstrap->initialize(id);
      std::atomic<int> calls{0};
      std::atomic<int> named{-1};
      bootstrap->onFailure([&](const RankFailure& failure) {
        named = failure.rank;
        ++calls;
      });
      bootstrap->barrier();
      leftBarrier.add();
      int word = 0;
      switch (rank) {
        case 0:
          expectError(ErrorCode::RemoteError, "recv of 4 bytes from rank 1, tag 3: rank 2 failed: its process ended",
                      [&] { bootstrap->recv(&word, sizeof(word), 1, 3); });
          break;
        case 1:
          expectError(ErrorCode::RemoteError, "barrier", [&] { bootstrap->barrier(); });
          break;
        case 2:
          leftBarrier.wait(5);
          std::this_thread::sleep_for(300ms);
          ::raise(SIGKILL);
          break;
        case 3: {
          std::vector<int> words(5);
          expectError(ErrorCode::RemoteError, "allGather", [&] { bootstrap->allGather(words.data(), 4); });
          break;
        }
        case 4: {
          std::vector<char> block(48 << 20);
          expectError(ErrorCode::RemoteError, "bytes to rank 2, tag 0: rank 2 failed", [&] {
            while (true) bootstrap->send(block.data(), static_cast<int>(block.size()), 2, 0);
          });
          break;
        }
      }
      if (bootstrap->failedRank() != 2) throw std::runtime_error("failedRank is not 2");
      expectError(ErrorCode::RemoteError, "rank 2 failed", [&] { bootstrap->barrier(); });
      // The callback runs after the callers have woken up.
      for (int i = 0; i < 1000 && calls == 0; ++i) std::this_thread::sleep_for(10ms);
      if (calls != 1 || named != 2) throw std::runtime_error("the callback ran " + std::to_string(calls) + " times");
      int late = -1;
      bootstrap->onFailure([&](const RankFailure& failure) { late = failure.rank; });
      if (late != 2) throw std::runtime_error("a late subscriber was not told");
      bootstrap.reset();
    });
  }
  for (int rank = 0; rank < 5; ++rank) {
    CAPTURE(rank);
    CHECK(ranks[rank].wait() == (rank == 2 ? "signal 9" : ""));
  }
}

TEST_CASE("the rank that failed first is reported, even if the ranks that report it fail as a result") {
  for (int round = 0; round < 10; ++round) {
    const UniqueId id = TcpBootstrap::createUniqueId();
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.emplace_back([&, rank] {
        TcpBootstrap bootstrap(rank, 4);
        try {
          bootstrap.initialize(id);
          if (rank == 3) ::raise(SIGKILL);
          bootstrap.barrier();
        } catch (const Error& error) {
          if (rank != 0) ::_exit(contains(error.what(), "rank 3 failed") ? 7 : 8);  // without a goodbye
          std::this_thread::sleep_for(20ms);
          expectContains(error.what(), "rank 3 failed");
          if (bootstrap.failedRank() != 3) throw std::runtime_error("another rank is blamed");
        }
      });
    }
    CHECK(ranks[0].wait() == "");
    CHECK(ranks[1].wait() == "exit status 7");
    CHECK(ranks[2].wait() == "exit status 7");
    CHECK(ranks[3].wait() == "signal 9");
  }
}

// A child that outlives the killed rank holds copies of its sockets: no connection is closed.
TEST_CASE("a killed rank is detected at once though a process that it forked is still alive") {
  if (!test::hasPidfd()) return;
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::Reports leftBarrier;
  std::array<int, 2> lifeline{};
  REQUIRE(::pipe2(lifeline.data(), O_CLOEXEC) == 0);
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      ::close(lifeline[1]);
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.setHeartbeatTimeout(0ms);
      bootstrap.initialize(id);
      bootstrap.barrier();
      if (rank == 1) {
        if (::fork() == 0) {
          char byte;
          ::_exit(static_cast<int>(::read(lifeline[0], &byte, 1)));  // until the test closes the other end
        }
        int word = 7;
        bootstrap.send(&word, sizeof(word), 0, 1);
        bootstrap.barrier();
        leftBarrier.wait(2);
        ::raise(SIGKILL);
      }
      bootstrap.barrier();
      leftBarrier.add();
      int word = 0;
      if (rank == 0) bootstrap.recv(&word, sizeof(word), 1, 1);
      expectError(ErrorCode::RemoteError, "rank 1 failed: its process ended or was killed",
                  [&] { bootstrap.recv(&word, sizeof(word), 1, 0); });
    });
  }
  // Its child holds the pipe to this process, too.
  CHECK(ranks[0].wait() == "");
  CHECK(ranks[2].wait() == "");
  ::close(lifeline[1]);
  CHECK(ranks[1].wait() == "signal 9");
  ::close(lifeline[0]);
}

TEST_CASE("an exception of a failure callback is contained, and the other callbacks run") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  ChildProcess killed([&] {
    TcpBootstrap bootstrap(1, 2);
    bootstrap.initialize(id);
    char subscribed;
    bootstrap.recv(&subscribed, 1, 0, 0);
    ::raise(SIGKILL);
  });
  ChildProcess survivor([&] {
    ::setenv("MSCCLPP_LOG_LEVEL", "NONE", 1);
    TcpBootstrap bootstrap(0, 2);
    bootstrap.initialize(id);
    std::atomic<bool> told{false};
    bootstrap.onFailure([](const RankFailure&) { throw std::runtime_error("of the callback"); });
    bootstrap.onFailure([](const RankFailure&) { throw 1; });
    bootstrap.onFailure([&](const RankFailure&) { told = true; });
    char subscribed = 1;
    bootstrap.send(&subscribed, 1, 1, 0);
    for (int i = 0; i < 1000 && !told; ++i) std::this_thread::sleep_for(10ms);
    if (!told) throw std::runtime_error("the last callback did not run");
    bootstrap.onFailure([](const RankFailure&) { throw std::runtime_error("of a late callback"); });
  });
  CHECK(survivor.wait() == "");
  CHECK(killed.wait() == "signal 9");
}

TEST_CASE("a stopped rank counts as failed after the heartbeat timeout, and is notified of it") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::Reports connected;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.setHeartbeatTimeout(3s);
      bootstrap.initialize(id);
      bootstrap.barrier();
      connected.add();
      int word = 0;
      const int other = rank == 0 ? 1 : 0;
      expectError(ErrorCode::RemoteError, "rank 1 failed: nothing was received from it for 3.0 s",
                  [&] { bootstrap.recv(&word, sizeof(word), other, 0); });
    });
  }
  connected.wait(3);
  ranks[1].stop();
  CHECK(ranks[0].wait() == "");
  CHECK(ranks[2].wait() == "");
  ranks[1].kill(SIGCONT);
  CHECK(ranks[1].wait() == "");
}

TEST_CASE("ranks that are idle, or stopped briefly, do not count as failed") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::Reports connected;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.setHeartbeatTimeout(5s);
      bootstrap.initialize(id);
      connected.add();
      std::this_thread::sleep_for(7s);
      bootstrap.barrier();
      if (bootstrap.failedRank()) throw std::runtime_error("a failure was reported");
    });
  }
  connected.wait(3);
  ranks[1].stop();
  std::this_thread::sleep_for(1s);
  ranks[1].kill(SIGCONT);
  for (auto& rank : ranks) CHECK(rank.wait() == "");
}

TEST_CASE("an orderly shutdown of a rank is not a failure, but ends the waits of its peers") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(3, [&](int rank) {
    TcpBootstrap bootstrap(rank, 3);
    bootstrap.initialize(id);
    int word = 42;
    if (rank == 1) {
      bootstrap.send(&word, sizeof(word), 0, 5);
      return;
    }
    if (rank == 0) {
      std::this_thread::sleep_for(100ms);
      word = 0;
      bootstrap.recv(&word, sizeof(word), 1, 5);
      if (word != 42) throw std::runtime_error("what rank 1 sent before it left is lost");
      expectError(ErrorCode::RemoteError, "rank 1 has left the job without sending this message",
                  [&] { bootstrap.recv(&word, sizeof(word), 1, 5); });
      expectError(ErrorCode::RemoteError, "send of 4 bytes to rank 1, tag 5: rank 1 has left the job",
                  [&] { bootstrap.send(&word, sizeof(word), 1, 5); });
      bootstrap.send(&word, sizeof(word), 2, 0);
    } else {
      bootstrap.recv(&word, sizeof(word), 0, 0);
    }
    if (bootstrap.failedRank()) throw std::runtime_error("a failure was reported");
  });
  CHECK(outcomes == test::Outcomes(3));
}

TEST_CASE("a message arrives though its sender shuts down at once") {
  for (int round = 0; round < 10; ++round) {
    const UniqueId id = TcpBootstrap::createUniqueId();
    const auto outcomes = onThreads(2, [&](int rank) {
      std::vector<char> block(3 << 20, static_cast<char>(rank));
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(id);
      if (rank == 0) {
        bootstrap.send(block.data(), static_cast<int>(block.size()), 1, 0);
      } else {
        // Bytes that the sender never reads must not turn its goodbye into a reset.
        try {
          bootstrap.send(block.data(), static_cast<int>(block.size()), 0, 0);
        } catch (const Error& error) {
          expectContains(error.what(), "rank 0 has left");
        }
        bootstrap.recv(block.data(), static_cast<int>(block.size()), 0, 0);
        if (block.front() != 0 || block.back() != 0) throw std::runtime_error("wrong bytes");
      }
    });
    CHECK(outcomes[1] == "");
  }
}

TEST_CASE("a timeout error contains the peer, the operation and the duration") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::atomic<bool> waited{false};  // however slow the machine, rank 1 is later
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id);
    if (rank == 0) {
      bootstrap.setTimeout(200ms);
      int word = 0;
      const std::string text = "rank 0, recv of 4 bytes from rank 1, tag 7: nothing arrived within ";
      expectError(ErrorCode::Timeout, text, [&] {
        try {
          bootstrap.recv(&word, sizeof(word), 1, 7);
        } catch (const Error& error) {
          if (test::secondsBehind(text, error.what()) < 0.2) throw std::runtime_error(error.what());
          throw;
        }
      });
      expectError(ErrorCode::Timeout, "rank 0, recv of 4 bytes from rank 0, tag 7",
                  [&] { bootstrap.recv(&word, sizeof(word), 0, 7); });
      expectError(ErrorCode::Timeout, "barrier, waiting for rank 1: nothing arrived", [&] { bootstrap.barrier(); });
      waited = true;
      bootstrap.setTimeout(10s);
      // The connection is intact: a late message can still be received.
      bootstrap.recv(&word, sizeof(word), 1, 7);
      bootstrap.recv(&word, sizeof(word), 1, 8);  // stays until rank 1 has left the barrier
    } else {
      int word = 0;
      for (int i = 0; i < 6000 && !waited; ++i) std::this_thread::sleep_for(10ms);
      bootstrap.send(&word, sizeof(word), 0, 7);
      bootstrap.barrier();
      bootstrap.send(&word, sizeof(word), 0, 8);
    }
  });
  CHECK(outcomes == test::Outcomes(2));
}

TEST_CASE("ranks that do not join are named on every rank") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(5, [&](int rank) {
    if (rank == 2 || rank == 4) return;
    TcpBootstrap bootstrap(rank, 5);
    expectError(ErrorCode::Timeout, "ranks 2, 4 of 5 are missing", [&] { bootstrap.initialize(id, 3); });
    expectError(ErrorCode::InvalidUsage, "call initialize first", [&] { bootstrap.barrier(); });
  });
  CHECK(outcomes == test::Outcomes(5));
}

TEST_CASE("an interface that does not exist is an error of every rank, at once") {
  const std::string address = "nosuchif:" + loopback();
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    const auto start = std::chrono::steady_clock::now();
    expectError(ErrorCode::InvalidUsage, "the name \"nosuchif\"", [&] { bootstrap.initialize(address, 30); });
    CHECK(test::secondsSince(start) < 15);
  });
  CHECK(outcomes == test::Outcomes(2));
}

TEST_CASE("the timeout of initialize is by default that of the other calls") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  TcpBootstrap bootstrap(0, 2);
  bootstrap.setTimeout(1s);
  const auto start = std::chrono::steady_clock::now();
  expectError(ErrorCode::Timeout, "rank 1 of 2 is missing", [&] { bootstrap.initialize(id); });
  CHECK(test::secondsSince(start) < 15);
  TcpBootstrap other(1, 2);
  expectError(ErrorCode::InvalidUsage, "1 second or more", [&] { other.initialize(id, 0); });
}

TEST_CASE("without rank 0 the other ranks time out") {
  const std::string address = loopback();
  TcpBootstrap bootstrap(1, 2);
  CHECK_THROWS_WITH_AS(bootstrap.initialize(address, 1), doctest::Contains("could not reach rank 0 at 127.0.0.1"),
                       Error);
}

TEST_CASE("a rank that fails during the rendezvous is named") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::Reports joining;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 4);  // rank 3 never joins
      joining.add();
      expectError(ErrorCode::RemoteError, "rank 2 ended or timed out", [&] { bootstrap.initialize(id, 30); });
    });
  }
  joining.wait(3);
  std::this_thread::sleep_for(2s);  // a rank that is killed before rank 0 has accepted it is only missing
  ranks[2].kill(SIGKILL);
  CHECK(ranks[0].wait() == "");
  CHECK(ranks[1].wait() == "");
  CHECK(ranks[2].wait() == "signal 9");
}

TEST_CASE("a duplicate rank, or a different number of ranks, is an error on all ranks") {
  struct Case {
    int rank, numRanks;
    const char* text;
  };
  for (const Case wrong : {Case{1, 4, "rank 1 joined twice"}, Case{2, 5, "rank 2 was started for a job of 5 ranks"}}) {
    CAPTURE(wrong.text);
    for (const bool byAddress : {false, true}) {
      CAPTURE(byAddress);
      const UniqueId id = TcpBootstrap::createUniqueId();
      const std::string address = loopback();
      const auto outcomes = onThreads(3, [&](int thread) {
        if (thread == 2) std::this_thread::sleep_for(200ms);
        TcpBootstrap bootstrap(thread == 2 ? wrong.rank : thread, thread == 2 ? wrong.numRanks : 4);
        expectError(ErrorCode::InvalidUsage, wrong.text,
                    [&] { byAddress ? bootstrap.initialize(address, 30) : bootstrap.initialize(id, 30); });
      });
      CHECK(outcomes == test::Outcomes(3));
    }
  }
}

TEST_CASE("a rank with another secret is rejected at once, and the job is not disturbed") {
  const std::string address = loopback();
  std::vector<ChildProcess> ranks;
  for (int i = 0; i < 3; ++i) {
    ranks.emplace_back([&, i] {
      ::setenv("MSCCLPP_SECRET", i == 2 ? "0123456789abcdeF" : "0123456789abcdef", 1);
      const int rank = i == 2 ? 1 : i;
      TcpBootstrap bootstrap(rank, 2);
      if (i == 1) std::this_thread::sleep_for(500ms);
      if (i == 2) {
        expectError(ErrorCode::InvalidUsage, "have different secrets", [&] { bootstrap.initialize(address, 30); });
        return;
      }
      bootstrap.initialize(address, 30);
      bootstrap.barrier();
    });
  }
  for (auto& rank : ranks) CHECK(rank.wait() == "");
}

TEST_CASE("unauthenticated clients do not disturb the rendezvous") {
  const int port = test::freePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  std::atomic<bool> allConnected{false};
  std::vector<RawClient> clients;
  std::thread connecting;
  const auto outcomes = onThreads(4, [&](int rank) {
    if (rank == 0) {
      connecting = std::thread([&] {
        const std::string magic = "msc++cp1";
        for (int i = 0; i < 1000; ++i) {
          clients.emplace_back(port);
          const RawClient& client = clients.back();
          switch (i % 6) {
            case 0:
              break;  // sends nothing
            case 1:
              client.send("GET / HTTP/1.1\r\n\r\n");
              break;
            case 2:
              client.send(magic);  // a valid beginning, never completed
              break;
            case 3:
              client.send(magic + std::string(512, '\xff'));  // all lengths and ranks are out of range
              break;
            case 4:
              client.send(std::string(1 << 16, 'x'));
              break;
            case 5:
              clients.pop_back();  // disconnects at once
              break;
          }
        }
        allConnected = true;
      });
    } else {
      while (!allConnected) std::this_thread::sleep_for(10ms);
    }
    TcpBootstrap bootstrap(rank, 4);
    bootstrap.initialize(address, 30);
    bootstrap.barrier();
    std::vector<int> words(4, rank);
    bootstrap.allGather(words.data(), sizeof(int));
    if (words != std::vector<int>{0, 1, 2, 3}) throw std::runtime_error("wrong words");
  });
  connecting.join();
  CHECK(clients.size() > 800);
  CHECK(outcomes == test::Outcomes(4));
}

TEST_CASE("it listens on one address only, and started programs inherit no descriptors") {
  const int port = test::freePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    if (rank == 1) {
      const RawClient reachable(port);  // rank 0 listens by now
      CHECK_THROWS(RawClient(port, 1, INADDR_LOOPBACK + 1));
      bootstrap.initialize(address, 30);
    } else {
      bootstrap.initialize(address, 30);
    }
    bootstrap.barrier();
    int sockets = 0;
    for (int fd = 3; fd < 256; ++fd) {
      int type = 0;
      socklen_t size = sizeof(type);
      if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) continue;
      ++sockets;
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    CHECK(sockets >= 2);
    bootstrap.barrier();
  });
  CHECK(outcomes == test::Outcomes(2));
}

TEST_CASE("no socket listens once the ranks are connected") {
  const int port = test::freePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(address);
    bootstrap.barrier();
    if (rank == 0) CHECK_THROWS(RawClient(port, 1));
    bootstrap.barrier();
  });
  CHECK(outcomes == test::Outcomes(2));
}

TEST_CASE("a cancelled subscription is not called") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const test::Reports connected;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(id);
      if (rank == 1) {
        connected.add();
        waitForKill();
      }
      std::atomic<int> kept{0}, dropped{0};
      FailureDetector& failureDetector = bootstrap;
      failureDetector.onFailure([&](const RankFailure&) { ++kept; });
      failureDetector.unsubscribe(failureDetector.onFailure([&](const RankFailure&) { ++dropped; }));
      connected.add();  // only now: a subscription after the failure is called at once
      int word;
      expectError(ErrorCode::RemoteError, "rank 1 failed", [&] { bootstrap.recv(&word, sizeof(word), 1, 0); });
      for (int i = 0; i < 1000 && kept == 0; ++i) std::this_thread::sleep_for(10ms);
      if (kept != 1 || dropped != 0) throw std::runtime_error("wrong callbacks");
    });
  }
  connected.wait(2);
  ranks[1].kill(SIGKILL);
  CHECK(ranks[0].wait() == "");
}
