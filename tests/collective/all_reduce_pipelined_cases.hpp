// Cases of collective/all_reduce.hpp over a tile pipeline.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "all_reduce_tester.hpp"
#include "mscclpp/basic/data_type.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

template <int lookahead, int Ranks = 0>
inline constexpr AllReduceConfig pipelinedConfig{Protocol::Simple, Pattern::TwoShot, Ranks, lookahead};

template <int lookahead, int Ranks = 0, class T = float, class Op = Sum>
using PipelinedTester = AllReduceTester<AllReduce<T, Op, pipelinedConfig<lookahead, Ranks>>, Op, Backend<>>;

inline constexpr std::size_t tilePacks = 8;

/// The smallest ring for a lookahead: a power of two, at least 2 * lookahead.
constexpr int slotsFor(int lookahead) {
  return lookahead == 1 ? 2 : lookahead == 2 ? 4 : 8;
}

/// The number of elements in `tiles` tiles of every block and rank.
template <class T>
std::size_t tilesOf(std::size_t tiles, const Shape& shape) {
  return tiles * tilePacks * static_cast<std::size_t>(shape.blocks * shape.ranks * packSize<T>);
}

/// Messages of no tile, a part of one, about one, and many more than slots.
template <class T>
std::vector<Message> tiledMessages(const Shape& shape) {
  return {{1},
          {tilesOf<T>(1, shape), true},
          {tilesOf<T>(1, shape) + 1, false, 1, 0},
          {0},
          {tilesOf<T>(9, shape) - 1, false, 0, 1},
          {3, true, 1},
          {tilesOf<T>(13, shape), false, 1, 1},
          {tilesOf<T>(5, shape) + 7, true}};
}

template <int lookahead, int Ranks, class T = float, class Op = Sum>
void checkPipeline(int ranks, int blocks, int warps, int spare) {
  CAPTURE(lookahead);
  CAPTURE(ranks);
  CAPTURE(blocks);
  CAPTURE(warps);
  const Shape shape{ranks, blocks, warps};
  PipelinedTester<lookahead, Ranks, T, Op> run(ranks, PipelineShape{tilePacks, blocks, slotsFor(lookahead) << spare});
  run.check(shape, tiledMessages<T>(shape));
  run.check(shape, {{tilesOf<T>(11, shape) + 2}, {5}});
}

template <int lookahead>
void checkLookahead() {
  checkPipeline<lookahead, 2>(2, 2, 3, 0);
  if constexpr (!detectsRaces) {
    checkPipeline<lookahead, 4>(4, 1, 2, 0);
    checkPipeline<lookahead, 8>(8, 1, 2, 1);
  }
  for (const int ranks : thinned({2, 3, 4, 5, 6, 7, 8}, {2, 3, 6}))
    checkPipeline<lookahead, 0>(ranks, ranks < 4 ? 2 : 1, ranks % 2 + 1, ranks % 3 == 0 ? 1 : 0);
}

TEST_CASE("pipeline: team sizes with lookahead 1") {
  checkLookahead<1>();
}
TEST_CASE("pipeline: team sizes with lookahead 2") {
  checkLookahead<2>();
}
TEST_CASE("pipeline: team sizes with lookahead 3") {
  checkLookahead<3>();
}

TEST_CASE("pipeline: element types and operators") {
  checkPipeline<2, 2, std::int8_t, Sum>(2, 1, 2, 0);
  checkPipeline<2, 2, bf16, Average>(2, 2, 2, 0);
  checkPipeline<1, 0, double, Product>(3, 1, 1, 0);
  if constexpr (!Backend<>::onGpu) {
    checkPipeline<2, 0, std::uint16_t, Max>(3, 1, 1, 0);
    checkPipeline<2, 0, f16, Min>(3, 1, 2, 0);
    checkPipeline<2, 0, f8e5m2, Sum>(3, 1, 2, 0);
  }
}

/// An operator that is chosen at run time against one that is not.
template <int Ranks, class T, class Op>
void checkRuntimeOp(int ranks) {
  using Collective = AllReduce<T, RuntimeOp, pipelinedConfig<2, Ranks>>;
  const Shape shape{ranks, 1, 2};
  AllReduceTester<Collective, Op, Backend<>> run(ranks, PipelineShape{tilePacks, 1, slotsFor(2)});
  run.check(shape, tiledMessages<T>(shape));
}

TEST_CASE("pipeline: an operator that is chosen at run time") {
  checkRuntimeOp<2, f16, Sum>(2);
  checkRuntimeOp<0, std::uint8_t, Max>(3);
}

template <int lookahead>
void checkLateRanks() {
  CAPTURE(lookahead);
  const Shape shape{3, 1, 2};
  PipelinedTester<lookahead> run(3, PipelineShape{tilePacks, 1, slotsFor(lookahead)});
  run.faults.allRanksSlow = true;
  run.faults.delay = 20'000;
  std::mt19937_64 random(7);
  for (int launch = 0; launch < 3; ++launch) {
    std::vector<Message> messages;
    for (int m = 0; m < maxMessages; ++m) {
      const std::size_t count = random() % (random() % 3 == 0 ? tilesOf<float>(10, shape) : 200);
      messages.push_back({count, random() % 2 == 0, static_cast<int>(random() % 4), static_cast<int>(random() % 4)});
    }
    run.check(shape, messages);
  }
}

TEST_CASE("pipeline: calls with different lengths and late ranks") {
  checkLateRanks<1>();
  checkLateRanks<2>();
  checkLateRanks<3>();
}

TEST_CASE("pipeline: counters that start at a large number") {
  const Shape shape{2, 2, 2};
  PipelinedTester<2> run(2, PipelineShape{tilePacks, 2, 4}, (std::uint64_t{1} << 32) - 5);
  run.check(shape, tiledMessages<float>(shape));
}

/// With too few slots a fast rank overwrites tiles that a slow one has not read yet.
template <int lookahead>
void checkTooFewSlots(int slots) {
  CAPTURE(lookahead);
  CAPTURE(slots);
  const Shape shape{2, 1, 2};
  const auto corrupted = [&](int ringSlots, std::uint64_t factor) {
    PipelinedTester<lookahead> run(2, PipelineShape{tilePacks, 1, ringSlots});
    run.faults.slowRank = 1;
    run.faults.delay = factor * 2'000'000;
    const auto outcome = run.run(shape, {{tilesOf<float>(8, shape)}});
    CHECK_FALSE(outcome.record);
    return outcome.difference != "";
  };
  CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) { return corrupted(slots, factor); }));
  CHECK_FALSE(corrupted(slotsFor(lookahead), 1));
}

// A ring that is too small causes an intended data race.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("pipeline: these checks detect a ring with too few slots") {
  checkTooFewSlots<1>(1);
  checkTooFewSlots<2>(2);
  checkTooFewSlots<2>(1);
  checkTooFewSlots<3>(4);
  checkTooFewSlots<3>(1);
}
#endif

TEST_CASE("pipeline: a rank that does not arrive, or whose signals are lost, leaves a record") {
  const Shape shape{3, 1, 2};
  for (const bool absent : {true, false}) {
    CAPTURE(absent);
    const auto attempt = [&](std::uint64_t timeout) {
      PipelinedTester<2> run(3, PipelineShape{tilePacks, 1, 4});
      run.timeout = timeout;
      if (absent) {
        run.faults.absentRank = 1;
      } else {
        run.faults.dropFrom = 1;
        run.faults.dropTo = 0;
      }
      return run.run(shape, {{tilesOf<float>(6, shape)}});
    };
    const auto outcome = withEnoughTime(attempt, 0, 1);
    REQUIRE(outcome.record);
    CHECK(outcome.record->outcome == WaitOutcome::Deadline);
    CHECK(outcome.record->operation == WaitOperation::Progress);
    CHECK(outcome.difference != "");
    if (absent) CHECK(outcome.record->rank != 1);
    // The first to time out is rank 0, waiting for rank 1, or rank 2, which soon waits for rank 0.
    if (outcome.record->rank == 0) CHECK(outcome.record->peer == 1);
    CHECK(outcome.record->seen < outcome.record->expected);
  }
}

}  // namespace mscclpp::test
