// The compiled collectives on CPU ranks when a rank dies, stays away, or gives up. One rank a process, which reads the
// environment that its test set.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "host/ranks.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/kernels/collectives.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;

namespace {

std::string freeAddress() {
  return "127.0.0.1:" + std::to_string(test::freePort());
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

struct Failure {
  ErrorCode code;
  std::string text;
  double seconds;  ///< that the failing call lasted
};

/// Calls until one throws.
Failure callUntilFailure(Collectives& collectives, std::size_t count) {
  std::vector<float> values(count, 1);
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    try {
      collectives.allReduce(values.data(), values.data(), count, DataType::FLOAT32, ReduceOp::MAX);
    } catch (const Error& error) {
      return {error.getErrorCode(), error.what(), test::secondsSince(start)};
    }
  }
}

void expectFailure(const Failure& failure, ErrorCode code, const std::string& part) {
  expect(failure.code == code, "another code: " + failure.text);
  expect(failure.text.find(part) != std::string::npos, failure.text + ": does not contain " + part);
}

struct Rank {
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
  Collectives collectives;

  Rank(int rank, int ranks, const std::string& address)
      : bootstrap(connected(rank, ranks, address)),
        communicator(std::make_shared<Communicator>(bootstrap)),
        collectives(communicator, DeviceType::CPU) {}

  static std::shared_ptr<TcpBootstrap> connected(int rank, int ranks, const std::string& address) {
    auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(address);
    return bootstrap;
  }
};

}  // namespace

TEST_CASE("a rank killed between or during calls is named to the others within 5 s") {
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}}) {
    CAPTURE(count);
    const std::string address = freeAddress();
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        Rank self(rank, 3, address);
        const Failure failure = callUntilFailure(self.collectives, count);
        expectFailure(failure, ErrorCode::RemoteError, "rank 2 was lost");
        expect(failure.seconds < 5, "it took " + std::to_string(failure.seconds) + " s");
        // The context stays failed, at once.
        const Failure again = callUntilFailure(self.collectives, count);
        expectFailure(again, ErrorCode::RemoteError, "rank 2 was lost");
        expect(again.seconds < 1, "a later call waited");
        bool threw = false;
        try {
          self.collectives.check();
        } catch (const Error&) {
          threw = true;
        }
        expect(threw, "check() is content");
      });
    }
    std::this_thread::sleep_for(700ms);
    ranks[2].kill(SIGKILL);
    CHECK(ranks[0].wait() == "");
    CHECK(ranks[1].wait() == "");
    CHECK(ranks[2].wait() == "signal 9");
  }
}

TEST_CASE("a rank that does not call: the wait ends at its deadline and says who was missed") {
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}}) {
    CAPTURE(count);
    const std::string address = freeAddress();
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        ::setenv("MSCCLPP_WAIT_TIMEOUT", "0.5", 1);
        Rank self(rank, 3, address);
        if (rank != 1) {
          const Failure failure = callUntilFailure(self.collectives, count);
          expectFailure(failure, ErrorCode::Timeout, "of rank 1 past its deadline");
          expect(failure.seconds > 0.4 && failure.seconds < 4, "it took " + std::to_string(failure.seconds) + " s");
        }
        self.bootstrap->barrier();
      });
    }
    for (auto& rank : ranks) CHECK(rank.wait() == "");
  }
}

TEST_CASE("abort from another thread ends a call") {
  const std::string address = freeAddress();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Rank self(rank, 2, address);
      if (rank == 0) {
        std::thread other([&] {
          std::this_thread::sleep_for(300ms);
          self.communicator->abort();
        });
        const Failure failure = callUntilFailure(self.collectives, 10);
        other.join();
        expectFailure(failure, ErrorCode::Aborted, "aborted");
        expect(failure.seconds < 3, "it took " + std::to_string(failure.seconds) + " s");
      }
      self.bootstrap->barrier();
    });
  }
  for (auto& rank : ranks) CHECK(rank.wait() == "");
}
