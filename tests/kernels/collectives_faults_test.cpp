// The compiled collectives on CPU ranks when a rank is killed, does not call, or aborts. Each rank is a process, which
// reads the environment set by its test.
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

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/ranks.hpp"

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
  double seconds;  ///< duration of the failing call
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
  expect(failure.code == code, "unexpected error code: " + failure.text);
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

TEST_CASE("a rank killed between or during calls is named to the others") {
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}}) {
    CAPTURE(count);
    const std::string address = freeAddress();
    const test::Reports connected;
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        Rank self(rank, 3, address);
        connected.add();
        const Failure failure = callUntilFailure(self.collectives, count);
        expectFailure(failure, ErrorCode::RemoteError, "rank 2 failed");
        expect(failure.seconds < test::soon, "it took " + std::to_string(failure.seconds) + " s");
        // Later calls fail at once.
        const Failure again = callUntilFailure(self.collectives, count);
        expectFailure(again, ErrorCode::RemoteError, "rank 2 failed");
        expect(again.seconds < test::soon, "a later call waited");
        bool threw = false;
        try {
          self.collectives.check();
        } catch (const Error&) {
          threw = true;
        }
        expect(threw, "check() did not throw");
      });
    }
    connected.wait(3);
    std::this_thread::sleep_for(300ms);
    ranks[2].kill(SIGKILL);
    CHECK(ranks[0].wait() == "");
    CHECK(ranks[1].wait() == "");
    CHECK(ranks[2].wait() == "signal 9");
  }
}

TEST_CASE("a rank that does not call: the wait times out and the error names the rank") {
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}}) {
    CAPTURE(count);
    const std::string address = freeAddress();
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        ::setenv("MSCCLPP_WAIT_TIMEOUT", "2", 1);
        Rank self(rank, 3, address);
        self.bootstrap->barrier();
        if (rank != 1) {
          const Failure failure = callUntilFailure(self.collectives, count);
          expectFailure(failure, ErrorCode::Timeout, "of rank 1 past its deadline");
          expect(failure.seconds > 1.9 && failure.seconds < test::soon,
                 "it took " + std::to_string(failure.seconds) + " s");
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
        expect(failure.seconds < test::soon, "it took " + std::to_string(failure.seconds) + " s");
      }
      self.bootstrap->barrier();
    });
  }
  for (auto& rank : ranks) CHECK(rank.wait() == "");
}
