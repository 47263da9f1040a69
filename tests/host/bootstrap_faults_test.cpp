// TcpBootstrap when things go wrong: ranks that die, stop, stay away, lie, and strangers who knock.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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

#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "ranks.hpp"

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

// Runs `call`, which must throw Error(code) with `part` in its text within `limit` seconds.
void expectError(ErrorCode code, const std::string& part, double limit, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
  } catch (const Error& error) {
    expectContains(error.what(), part);
    if (error.getErrorCode() != code) throw std::runtime_error(std::string("another code: ") + error.what());
    const double seconds = test::secondsSince(start);
    if (seconds > limit) throw std::runtime_error("it took " + std::to_string(seconds) + " s");
    return;
  }
  throw std::runtime_error("nothing was thrown where \"" + part + "\" was expected");
}

// A process that waits to be killed.
void waitForDeath() {
  while (true) ::pause();
}

std::string loopback() {
  return "127.0.0.1:" + std::to_string(test::freePort());
}

// A connection as a stranger makes it.
class Stranger {
 public:
  explicit Stranger(int port, int attempts = 200, in_addr_t where = INADDR_LOOPBACK)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(where);
    for (int i = 0; i < attempts; ++i) {
      if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return;
      std::this_thread::sleep_for(10ms);
    }
    throw std::runtime_error("nobody listens");
  }
  Stranger(Stranger&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  void say(const std::string& bytes) const {
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;  // already shown the door
  }

 private:
  int fd_;
};

}  // namespace

TEST_CASE("a killed rank is named by every other rank, whatever it waits for") {
  const UniqueId id = TcpBootstrap::createUniqueId();
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
      int word = 0;
      switch (rank) {
        case 0:
          expectError(ErrorCode::RemoteError, "recv with rank 1 (tag 3): rank 2 failed: its process ended", 1.5,
                      [&] { bootstrap->recv(&word, sizeof(word), 1, 3); });
          break;
        case 1:
          expectError(ErrorCode::RemoteError, "barrier", 1.5, [&] { bootstrap->barrier(); });
          break;
        case 2:
          std::this_thread::sleep_for(300ms);
          ::raise(SIGKILL);
          break;
        case 3: {
          std::vector<int> words(5);
          expectError(ErrorCode::RemoteError, "allGather", 1.5, [&] { bootstrap->allGather(words.data(), 4); });
          break;
        }
        case 4: {
          std::vector<char> block(48 << 20);
          expectError(ErrorCode::RemoteError, "send with rank 2", 1.5, [&] {
            while (true) bootstrap->send(block.data(), static_cast<int>(block.size()), 2, 0);
          });
          break;
        }
      }
      if (bootstrap->failedRank() != 2) throw std::runtime_error("failedRank is not 2");
      expectError(ErrorCode::RemoteError, "rank 2 failed", 0.1, [&] { bootstrap->barrier(); });
      // The callback comes after the callers are awake.
      for (int i = 0; i < 100 && calls == 0; ++i) std::this_thread::sleep_for(10ms);
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

TEST_CASE("the rank that died first is blamed, even if its witnesses die of it") {
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
          if (rank != 0) ::_exit(contains(error.what(), "rank 3 failed") ? 7 : 8);  // without a farewell
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

TEST_CASE("a rank that is stopped is missed after the heartbeat timeout, and learns of it") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.setHeartbeatTimeout(1s);
      bootstrap.initialize(id);
      bootstrap.barrier();
      int word = 0;
      const int other = rank == 0 ? 1 : 0;
      expectError(ErrorCode::RemoteError, "rank 1 failed: nothing was heard of it for 1.0 s", rank == 1 ? 30 : 4,
                  [&] { bootstrap.recv(&word, sizeof(word), other, 0); });
    });
  }
  std::this_thread::sleep_for(400ms);
  ranks[1].stop();
  CHECK(ranks[0].wait() == "");
  CHECK(ranks[2].wait() == "");
  ranks[1].kill(SIGCONT);
  CHECK(ranks[1].wait() == "");
}

TEST_CASE("ranks that are silent but alive, or stopped for a moment, are no failure") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.setHeartbeatTimeout(1500ms);
      bootstrap.initialize(id);
      std::this_thread::sleep_for(2500ms);
      bootstrap.barrier();
      if (bootstrap.failedRank()) throw std::runtime_error("a failure was reported");
    });
  }
  std::this_thread::sleep_for(500ms);
  ranks[1].stop();
  std::this_thread::sleep_for(400ms);
  ranks[1].kill(SIGCONT);
  for (auto& rank : ranks) CHECK(rank.wait() == "");
}

TEST_CASE("a rank that leaves in order is no failure, but nobody waits for it in vain") {
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
      expectError(ErrorCode::RemoteError, "rank 1 has left the job without sending this message", 1,
                  [&] { bootstrap.recv(&word, sizeof(word), 1, 5); });
      expectError(ErrorCode::RemoteError, "rank 1 has left the job already", 1,
                  [&] { bootstrap.send(&word, sizeof(word), 1, 5); });
      bootstrap.send(&word, sizeof(word), 2, 0);
    } else {
      bootstrap.recv(&word, sizeof(word), 0, 0);
    }
    if (bootstrap.failedRank()) throw std::runtime_error("a failure was reported");
  });
  CHECK(outcomes == test::Outcomes(3));
}

TEST_CASE("a last message reaches its receiver though the sender leaves at once") {
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

TEST_CASE("a wait that takes too long says who, what and how long") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::atomic<bool> waited{false};  // however slow the machine, rank 1 is later
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id);
    if (rank == 0) {
      bootstrap.setTimeout(200ms);
      int word = 0;
      expectError(ErrorCode::Timeout, "rank 0, recv with rank 1 (tag 7): nothing arrived within 0.2 s", 1,
                  [&] { bootstrap.recv(&word, sizeof(word), 1, 7); });
      expectError(ErrorCode::Timeout, "rank 0, recv with rank 0 (tag 7)", 1,
                  [&] { bootstrap.recv(&word, sizeof(word), 0, 7); });
      expectError(ErrorCode::Timeout, "barrier with rank 1: nothing arrived", 1, [&] { bootstrap.barrier(); });
      waited = true;
      bootstrap.setTimeout(10s);
      // The connection is whole: what comes late can still be had.
      bootstrap.recv(&word, sizeof(word), 1, 7);
    } else {
      int word = 0;
      for (int i = 0; i < 1000 && !waited; ++i) std::this_thread::sleep_for(10ms);
      bootstrap.send(&word, sizeof(word), 0, 7);
      bootstrap.barrier();
    }
  });
  CHECK(outcomes == test::Outcomes(2));
}

TEST_CASE("ranks that stay away are named, to everybody") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(5, [&](int rank) {
    if (rank == 2 || rank == 4) return;
    TcpBootstrap bootstrap(rank, 5);
    expectError(ErrorCode::Timeout, "missing 2, 4 of 5", 3.5, [&] { bootstrap.initialize(id, 1); });
    expectError(ErrorCode::InvalidUsage, "call initialize first", 1, [&] { bootstrap.barrier(); });
  });
  CHECK(outcomes == test::Outcomes(5));
}

TEST_CASE("without rank 0 the others give up in time") {
  const std::string address = loopback();
  TcpBootstrap bootstrap(1, 2);
  CHECK_THROWS_WITH_AS(bootstrap.initialize(address, 1), doctest::Contains("could not reach rank 0 at 127.0.0.1"),
                       Error);
}

TEST_CASE("a rank that dies while the ranks meet is named") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 4);  // rank 3 never comes
      expectError(ErrorCode::RemoteError, "rank 2 ended or gave up", 2, [&] { bootstrap.initialize(id, 20); });
    });
  }
  std::this_thread::sleep_for(400ms);
  ranks[2].kill(SIGKILL);
  CHECK(ranks[0].wait() == "");
  CHECK(ranks[1].wait() == "");
  CHECK(ranks[2].wait() == "signal 9");
}

TEST_CASE("a rank that is taken twice, or a wrong number of ranks, is an error for all") {
  struct Case {
    int rank, numRanks;
    const char* text;
  };
  for (const Case wrong : {Case{1, 4, "rank 1 joined twice"}, Case{2, 5, "rank 2 was started for a job of 5 ranks"}}) {
    CAPTURE(wrong.text);
    const UniqueId id = TcpBootstrap::createUniqueId();
    const auto outcomes = onThreads(3, [&](int thread) {
      if (thread == 2) std::this_thread::sleep_for(200ms);
      TcpBootstrap bootstrap(thread == 2 ? wrong.rank : thread, thread == 2 ? wrong.numRanks : 4);
      expectError(ErrorCode::InvalidUsage, wrong.text, 2, [&] { bootstrap.initialize(id, 10); });
    });
    CHECK(outcomes == test::Outcomes(3));
  }
}

TEST_CASE("a rank with another secret is turned away at once, and the job goes on without harm") {
  const std::string address = loopback();
  std::vector<ChildProcess> ranks;
  for (int i = 0; i < 3; ++i) {
    ranks.emplace_back([&, i] {
      ::setenv("MSCCLPP_SECRET", i == 2 ? "0123456789abcdeF" : "0123456789abcdef", 1);
      const int rank = i == 2 ? 1 : i;
      TcpBootstrap bootstrap(rank, 2);
      if (i == 1) std::this_thread::sleep_for(500ms);
      if (i == 2) {
        expectError(ErrorCode::InvalidUsage, "have different secrets", 2, [&] { bootstrap.initialize(address, 20); });
        return;
      }
      bootstrap.initialize(address, 10);
      bootstrap.barrier();
    });
  }
  for (auto& rank : ranks) CHECK(rank.wait() == "");
}

TEST_CASE("strangers of all kinds do not disturb the ranks that meet") {
  const int port = test::freePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  std::atomic<bool> allHere{false};
  std::vector<Stranger> crowd;
  std::thread strangers;
  const auto outcomes = onThreads(4, [&](int rank) {
    if (rank == 0) {
      strangers = std::thread([&] {
        const std::string magic = "msc++cp1";
        for (int i = 0; i < 1000; ++i) {
          crowd.emplace_back(port);
          const Stranger& stranger = crowd.back();
          switch (i % 6) {
            case 0:
              break;  // silence
            case 1:
              stranger.say("GET / HTTP/1.1\r\n\r\n");
              break;
            case 2:
              stranger.say(magic);  // begins well, never ends
              break;
            case 3:
              stranger.say(magic + std::string(512, '\xff'));  // every length and rank in it is monstrous
              break;
            case 4:
              stranger.say(std::string(1 << 16, 'x'));
              break;
            case 5:
              crowd.pop_back();  // gone at once
              break;
          }
        }
        allHere = true;
      });
    } else {
      while (!allHere) std::this_thread::sleep_for(10ms);
    }
    TcpBootstrap bootstrap(rank, 4);
    bootstrap.initialize(address, 20);
    bootstrap.barrier();
    std::vector<int> words(4, rank);
    bootstrap.allGather(words.data(), sizeof(int));
    if (words != std::vector<int>{0, 1, 2, 3}) throw std::runtime_error("wrong words");
  });
  strangers.join();
  CHECK(crowd.size() > 800);
  CHECK(outcomes == test::Outcomes(4));
}

TEST_CASE("it listens at the one address alone, and hands nothing to programs that are started") {
  const int port = test::freePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    if (rank == 1) {
      const Stranger here(port);  // rank 0 listens by now
      CHECK_THROWS(Stranger(port, 1, INADDR_LOOPBACK + 1));
      bootstrap.initialize(address, 20);
    } else {
      bootstrap.initialize(address, 20);
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

TEST_CASE("nobody listens once the ranks have met") {
  const int port = test::freePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto outcomes = onThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(address);
    bootstrap.barrier();
    if (rank == 0) CHECK_THROWS(Stranger(port, 1));
    bootstrap.barrier();
  });
  CHECK(outcomes == test::Outcomes(2));
}

TEST_CASE("subscriptions end when they are told to") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(id);
      if (rank == 1) waitForDeath();
      std::atomic<int> kept{0}, dropped{0};
      Liveness& liveness = bootstrap;
      liveness.onFailure([&](const RankFailure&) { ++kept; });
      liveness.unsubscribe(liveness.onFailure([&](const RankFailure&) { ++dropped; }));
      int word;
      expectError(ErrorCode::RemoteError, "rank 1 failed", 5, [&] { bootstrap.recv(&word, sizeof(word), 1, 0); });
      for (int i = 0; i < 100 && kept == 0; ++i) std::this_thread::sleep_for(10ms);
      if (kept != 1 || dropped != 0) throw std::runtime_error("wrong callbacks");
    });
  }
  std::this_thread::sleep_for(300ms);
  ranks[1].kill(SIGKILL);
  CHECK(ranks[0].wait() == "");
}
