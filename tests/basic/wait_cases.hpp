// Cases of basic/wait.hpp: success, timeout, abort, and the content of the record.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// Two waits of one policy for a word that rank 1, if it runs, sets to 1. Stores the results and the number of attempts
/// of the second wait.
struct WaitTwiceBody {
  struct Result {
    int first, second, failed, secondAttempts;
  };
  Window<> memory;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto* word = reinterpret_cast<std::uint32_t*>(memory.at(0));
    if (rank == 1) {
      const auto start = arch::nanoseconds();
      while (arch::nanoseconds() - start < 5'000'000) arch::backoff(200);
      arch::store<arch::Order::Release, arch::Scope::System>(word, 1u);
      return;
    }
    auto wait = policy;
    int attempts = 0;
    const auto attempt = [&](std::uint64_t& seen) {
      ++attempts;
      const auto value = arch::load<arch::Order::Acquire, arch::Scope::System>(word);
      seen = value + 40;
      return value == 1;
    };
    const WaitSite site{WaitOperation::Progress, 5, 6, 7, 41};
    Result result{};
    result.first = wait.until(site, attempt);
    attempts = 0;
    result.second = wait.until(site, attempt);
    result.secondAttempts = attempts;
    result.failed = wait.failed();
    *reinterpret_cast<Result*>(memory.at(0, 64)) = result;
  }
};

inline WaitTwiceBody::Result resultOf(const std::vector<int>& words) {
  return {words[16], words[17], words[18], words[19]};
}

TEST_CASE("wait: succeeds when the value arrives, and leaves no record") {
  Backend<> backend;
  auto memory = backend.allocate(2, 128, 0);
  backend.launch({2, 1, 1}, WaitTwiceBody{memory.window(), backend.wait()});
  const auto result = resultOf(memory.read<int>(0));
  CHECK(result.first == 1);
  CHECK(result.second == 1);
  CHECK(result.secondAttempts == 1);
  CHECK(result.failed == 0);
}

TEST_CASE("wait: a timeout leaves a record of the wait, and later waits make one attempt") {
  Backend<> backend;
  constexpr std::uint64_t timeout = 30'000'000;
  auto memory = backend.allocate(1, 128, 0);
  const auto record = backend.run({1, 1, 1}, WaitTwiceBody{memory.window(), backend.wait(timeout)});
  REQUIRE(record);
  CHECK(record->state == 2);
  CHECK(record->outcome == WaitOutcome::Deadline);
  CHECK(record->operation == WaitOperation::Progress);
  CHECK(record->rank == 5);
  CHECK(record->peer == 6);
  CHECK(record->block == 7);
  CHECK(record->expected == 41);
  CHECK(record->seen == 40);
  CHECK(record->waitedNanoseconds >= timeout);
  CHECK(record->waitedNanoseconds < 5'000'000'000);
  const auto result = resultOf(memory.read<int>(0));
  CHECK(result.first == 0);
  CHECK(result.second == 0);
  CHECK(result.secondAttempts == 1);
  CHECK(result.failed == 1);
}

TEST_CASE("wait: the host aborts a wait without a timeout") {
  Backend<> backend;
  auto memory = backend.allocate(1, 128, 0);
  const WaitTwiceBody body{memory.window(), backend.wait(0)};
  const auto record = backend.run({1, 1, 1}, body, [](WaitControl& control) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    arch::store<arch::Order::Release, arch::Scope::System>(&control.abort, 1u);
  });
  REQUIRE(record);
  CHECK(record->outcome == WaitOutcome::Aborted);
  CHECK(record->rank == 5);
  CHECK(resultOf(memory.read<int>(0)).first == 0);
}

TEST_CASE("wait: the timeout applies without a control block too") {
  Backend<> backend;
  auto memory = backend.allocate(1, 128, 0);
  CHECK_FALSE(backend.run({1, 1, 1}, WaitTwiceBody{memory.window(), BoundedWait(nullptr, 20'000'000)}));
  CHECK(resultOf(memory.read<int>(0)).first == 0);
  CHECK(resultOf(memory.read<int>(0)).failed == 1);
}

/// Block 0 has a timeout, the others have none: its failure must end their waits, with a single record.
struct OneDeadlineBody {
  Window<> results;
  BoundedWait bounded;
  BoundedWait unbounded;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto wait = grid.blockIndex() == 0 ? bounded : unbounded;
    const WaitSite site{WaitOperation::Fifo, rank, -1, static_cast<std::uint32_t>(grid.blockIndex()), 1};
    const bool passed = wait.until(site, [](std::uint64_t&) { return false; });
    reinterpret_cast<int*>(results.at(rank))[grid.blockIndex() * grid.block().size() + grid.block().rank()] = passed;
  }
};

TEST_CASE("wait: one failure ends all waits of the context, and the first failure is recorded") {
  Backend<> backend;
  const Shape shape{1, 3, 1};
  auto results = backend.allocate(1, sizeof(int) * shape.blocks * Backend<>::warpWidth, poisonByte);
  const auto record = backend.run(shape, OneDeadlineBody{results.window(), backend.wait(20'000'000), backend.wait(0)});
  REQUIRE(record);
  CHECK(record->block == 0);
  CHECK(record->outcome == WaitOutcome::Deadline);
  CHECK(results.read<int>(0) == std::vector<int>(shape.blocks * Backend<>::warpWidth, 0));
}

/// The lanes' attempts vote. Only the last lane has a timeout, and only its attempts fail.
struct WarpWaitBody {
  Window<> results;
  BoundedWait bounded;
  BoundedWait unbounded;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto warp = grid.warp();
    const bool last = warp.rank() == warp.size() - 1;
    auto wait = last ? bounded : unbounded;
    const WaitSite site{WaitOperation::Packet, rank, -1, 0, 1};
    int tries = 0;
    const bool never = wait.untilCollective(warp, site, [&](std::uint64_t&) { return warp.all(!last); });
    const bool failedThen = wait.failed();
    auto fresh = bounded;
    const bool warpSucceeded = fresh.untilCollective(warp, site, [&](std::uint64_t&) { return warp.all(++tries > 3); });
    warp.sync();
    reinterpret_cast<int*>(results.at(rank))[warp.rank()] =
        (never ? 1 : 0) | (failedThen ? 2 : 0) | (warpSucceeded ? 4 : 0) | (tries == 4 ? 8 : 0);
  }
};

TEST_CASE("wait: the lanes of a warp succeed together and fail together") {
  Backend<> backend;
  auto results = backend.allocate(1, sizeof(int) * Backend<>::warpWidth, poisonByte);
  CHECK(backend.run({1, 1, 1}, WarpWaitBody{results.window(), backend.wait(20'000'000), backend.wait(0)}));
  CHECK(results.read<int>(0) == std::vector<int>(Backend<>::warpWidth, 2 | 4 | 8));
}

}  // namespace mscclpp::test
