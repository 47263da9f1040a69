// The compiled collectives on CPU ranks when a rank is killed, does not call, or aborts. Each rank is a process, which
// reads the environment set by its test.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "killed_rank.hpp"
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
Failure callUntilFailure(const std::function<void()>& call) {
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    try {
      call();
    } catch (const Error& error) {
      return {error.getErrorCode(), error.what(), test::secondsSince(start)};
    }
  }
}
Failure callUntilFailure(Collectives& collectives, std::size_t count) {
  std::vector<float> values(count, 1);
  return callUntilFailure(
      [&] { collectives.allReduce(values.data(), values.data(), count, DataType::FLOAT32, ReduceOp::MAX); });
}

void expectFailure(const Failure& failure, ErrorCode code, const std::string& part) {
  expect(failure.code == code, "unexpected error code: " + failure.text);
  expect(failure.text.find(part) != std::string::npos, failure.text + ": does not contain " + part);
}

struct Rank {
  std::shared_ptr<TcpBootstrap> bootstrap;
  std::shared_ptr<Communicator> communicator;
  Collectives collectives;

  Rank(int rank, int ranks, const std::string& address,
       Collectives::Algorithms algorithms = Collectives::Algorithms::Selected)
      : bootstrap(connected(rank, ranks, address)),
        communicator(std::make_shared<Communicator>(bootstrap)),
        collectives(communicator, DeviceType::CPU, algorithms) {}

  static std::shared_ptr<TcpBootstrap> connected(int rank, int ranks, const std::string& address) {
    auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(address);
    return bootstrap;
  }
};

/// Three ranks repeat a call, until rank 2 is killed: the others get an error that names it, soon, and in every later
/// call. The ranks are forked processes: each has its own copy of what the call refers to.
void killRankDuring(const std::function<void(Collectives&)>& call) {
  const std::string address = freeAddress();
  const test::Reports connected;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      Rank self(rank, 3, address);
      connected.add();
      for (const char* which : {"the first call that failed", "a later call"}) {
        const Failure failure = callUntilFailure([&] { call(self.collectives); });
        expectFailure(failure, ErrorCode::RemoteError, "rank 2 failed");
        expect(failure.seconds < test::soon, std::string(which) + " took " + std::to_string(failure.seconds) + " s");
      }
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

}  // namespace

TEST_CASE("a rank killed between or during calls is named to the others") {
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}}) {
    CAPTURE(count);
    std::vector<float> values(count, 1);
    killRankDuring([&](Collectives& collectives) {
      collectives.allReduce(values.data(), values.data(), count, DataType::FLOAT32, ReduceOp::MAX);
    });
  }
}

TEST_CASE("a rank killed between or during exchanges is named to the others") {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{1'000'000}}) {
    CAPTURE(bytes);
    const std::vector<char> input(bytes);
    std::vector<std::vector<char>> outputs(3, std::vector<char>(bytes));
    std::vector<SentMessage> sends;
    std::vector<ReceivedMessage> receives;
    for (int peer = 0; peer < 3; ++peer) {
      sends.push_back({input.data(), bytes, peer});
      receives.push_back({outputs[static_cast<std::size_t>(peer)].data(), bytes, peer});
    }
    killRankDuring([&](Collectives& collectives) { collectives.exchange(sends, receives); });
  }
}

namespace {

/// At its end, tells the parent that this rank has ended, and keeps it alive until all have: a rank that exits would be
/// another failed rank.
class EndTogether {
 public:
  EndTogether(const test::Reports& ended, const test::Reports& mayExit) : ended_(ended), mayExit_(mayExit) {}
  ~EndTogether() {
    ended_.add();
    mayExit_.wait(1);
  }
  EndTogether(const EndTogether&) = delete;
  EndTogether& operator=(const EndTogether&) = delete;

 private:
  const test::Reports& ended_;
  const test::Reports& mayExit_;
};

/// Ranks 0 and 1 of 3: the call in which rank 2 is killed, and those after it.
void expectKilledRankNamed(Collectives& collectives, const test::CheckedCall& checked, int rank) {
  const auto perform = [&] {
    return test::performAndCompare(checked, rank, 3, [&](CollectiveCall call, test::Bytes& from, test::Bytes* to) {
      const auto inputAt = reinterpret_cast<std::size_t>(call.input);
      const auto outputAt = reinterpret_cast<std::size_t>(call.output);
      if (call.input != nullptr) call.input = from.data() + inputAt;
      if (call.output != nullptr) call.output = (to == nullptr ? from : *to).data() + outputAt;
      collectives.run(call);
    });
  };
  const auto start = std::chrono::steady_clock::now();
  int succeeded = 0;
  for (bool failed = false; !failed; ++succeeded) {
    try {
      const std::string problem = perform();
      expect(problem.empty(), "a call returned a wrong result: " + problem);
      expect(!test::dependsOn(checked, rank, 3, 2), "a call succeeded without the data of the killed rank");
      expect(test::secondsSince(start) < test::soon, "calls went on succeeding");
    } catch (const Error& error) {
      failed = true;
      expectFailure({error.getErrorCode(), error.what(), 0}, ErrorCode::RemoteError, "rank 2 failed");
    }
  }
  expect(test::secondsSince(start) < test::soon, "the failure was reported too late");
  for (const auto& again : std::vector<std::function<void()>>{[&] { perform(); }, [&] { collectives.check(); }}) {
    try {
      again();
    } catch (const Error& error) {
      expectFailure({error.getErrorCode(), error.what(), 0}, ErrorCode::RemoteError, "rank 2 failed");
      continue;
    }
    expect(false, "a call after the failure did not throw");
  }
}

}  // namespace

TEST_CASE("a rank killed in any collective is named to all others, and no call returns a wrong result") {
  for (const CollectiveType collective : test::everyCollective) {
    for (test::KilledCall killed : test::killedCallsOf(collective, 2, 100, 300'000)) {
      test::CheckedCall& checked = killed.checked;
      if (checked.call.count == 100) {
        checked.call.algorithm = collective == CollectiveType::AllReduce ? "one_shot_ll16" : "ll16";
      }
      INFO(test::describe(checked) << std::string(killed.othersWait ? ", while the others wait" : ", at once"));
      const std::string address = freeAddress();
      const test::Reports calling;
      const test::Reports ended;
      const test::Reports mayExit;
      std::vector<ChildProcess> ranks;
      for (int rank = 0; rank < 3; ++rank) {
        ranks.emplace_back([&, rank] {
          Rank self(rank, 3, address, Collectives::Algorithms::All);
          std::optional<EndTogether> together;
          if (rank != 2) together.emplace(ended, mayExit);
          // A call of all ranks first, which all have left when the rank is killed.
          float values[2] = {1, 1};
          self.collectives.allReduce(values, values + 1, 1, DataType::FLOAT32, ReduceOp::SUM);
          expect(values[1] == 3, "a wrong sum");
          if (rank == 2) {
            calling.wait(2);
            if (killed.othersWait) std::this_thread::sleep_for(200ms);
            std::raise(SIGKILL);
          }
          calling.add();
          expectKilledRankNamed(self.collectives, checked, rank);
        });
      }
      ended.wait(2);
      ranks[2].kill(SIGKILL);  // had another rank failed before
      mayExit.add();
      mayExit.add();
      CHECK(ranks[0].wait() == "");
      CHECK(ranks[1].wait() == "");
      CHECK(ranks[2].wait() == "signal 9");
    }
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
