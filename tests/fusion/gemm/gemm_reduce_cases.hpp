// Cases of fusion/gemm/gemm_reduce.hpp: every element of the sum over the ranks of products of random matrices, of any
// size, and the same bits on all ranks.
#pragma once

#include <doctest/doctest.h>

#include "gemm_reduce_tester.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "random_shapes.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

template <RowDelivery delivery>
inline constexpr GemmReduceConfig smallGemm{
    .delivery = delivery, .tile = smallTile, .reducerWarps = 1, .groupBlocks = 2, .packsPerLane = 1};

template <class T, GemmReduceConfig config>
void checkConfig(int ranks, int blocks, const GemmCall& call) {
  checkGemmReduce<GemmReduce<T, config>, T>(ranks, blocks, call);
}

/// Sizes that are and are not multiples of tiles, packs and slices, and random ones.
template <class T, RowDelivery delivery>
void checkSizes() {
  constexpr auto& config = smallGemm<delivery>;
  checkConfig<T, config>(2, 2, {64, 64, 32, 0, 2});
  checkConfig<T, config>(2, 1, {37, 51, 45, 0, 3});
  checkConfig<T, config>(3, 1, {2, 270, 24, 8, 2});  // an empty slice; rows in two parts
  std::mt19937 random(static_cast<unsigned>(delivery) + 7);
  for (int i = 0; i < randomShapes(); ++i) {
    const GemmCall call{random() % 70 + 1, random() % 70 + 1, random() % 70 + 1, random() % 3 * 4, 1};
    const int ranks = i % 4 == 0 ? static_cast<int>(random() % 2) + 3 : 2;
    checkConfig<T, config>(ranks, static_cast<int>(random() % 2) + 1, call);
  }
}

template <RowDelivery delivery>
void checkSmall(int ranks, int blocks, const GemmCall& call) {
  constexpr auto& config = smallGemm<delivery>;
  checkConfig<bf16, config>(ranks, blocks, call);
}

TEST_CASE("GEMM and all-reduce, tiles of several warps") {
  constexpr GemmReduceConfig config{.tile = sharedTile, .reducerWarps = 1};
  checkConfig<bf16, config>(2, 1, {45, 70, 130, 0, 1});
  if (!Backend<32>::onGpu) return;
  checkConfig<bf16, config>(2, 8, {700, 1100, 264, 0, 2});
  std::mt19937 random(17);
  for (int i = 0; i < randomShapes() / 10; ++i) {
    checkConfig<bf16, config>(2, 8, {random() % 400 + 1, random() % 400 + 1, random() % 90 + 1, 0, 1});
  }
}
template <RowDelivery delivery>
void checkScaled() {
  constexpr GemmReduceConfig config{
      .delivery = delivery, .tile = ofFp8(smallTile), .reducerWarps = 1, .groupBlocks = 2, .packsPerLane = 1};
  using C = GemmReduce<bf16, config, StoreRows<bf16>, f8e4m3>;
  checkGemmReduce<C, bf16, ScalePairs<bf16>>(2, 2, {64, 64, 64, 0, 2});
  checkGemmReduce<C, bf16, ScalePairs<bf16>>(3, 1, {37, 51, 45, 0, 3, 1, 11});
  checkGemmReduce<C, bf16, ScalePairs<bf16>>(2, 1, {18, 33, 80, 16, 2});
}
TEST_CASE("GEMM and all-reduce, and reduce-scatter, of fp8 with scales") {
  checkScaled<RowDelivery::ToAll>();
  checkScaled<RowDelivery::ToOwner>();
  constexpr GemmReduceConfig config{.tile = ofFp8(sharedTile), .reducerWarps = 1};
  using C = GemmReduce<bf16, config, StoreRows<bf16>, f8e4m3>;
  if (Backend<32>::onGpu) checkGemmReduce<C, bf16, ScalePairs<bf16>>(2, 8, {700, 1100, 1040, 0, 2});
}
TEST_CASE("GEMM of one rank") {
  checkSmall<RowDelivery::ToAll>(1, 1, {18, 33, 16, 0, 2});
  checkSmall<RowDelivery::ToOwner>(1, 1, {18, 33, 16, 0, 2});
}

// In one kernel, as a persistent one makes them.
inline constexpr int manyRepeats = Backend<32>::onGpu ? 34'000 : 10;

TEST_CASE("GEMM and reduce-scatter, many calls in a kernel") {
  checkSmall<RowDelivery::ToOwner>(2, 1, {18, 33, 16, 0, 3, manyRepeats});
}
TEST_CASE("GEMM and all-reduce, many calls in a kernel") {
  checkSmall<RowDelivery::ToAll>(2, 1, {18, 33, 16, 0, 3, manyRepeats});
}
TEST_CASE("GEMM and reduce-scatter") {
  checkSizes<bf16, RowDelivery::ToOwner>();
}
TEST_CASE("GEMM and all-reduce, in two hops") {
  checkSizes<bf16, RowDelivery::ToAll>();
}
TEST_CASE("GEMM and all-reduce, in one hop, of f16") {
  checkSizes<f16, RowDelivery::Redundant>();
}

// These have an intended data race.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("GEMM and all-reduce: the checks detect a tile that counts before it is complete") {
  using Scratch = RowScratch<bf16, RowDelivery::ToAll>;
  constexpr int parts = 2;
  const GemmCall call{16, parts * smallTile.columns, 16, 0, 1};
  const auto run = [&](std::uint32_t counted, std::uint64_t factor) {
    return runGemmReduce<GemmReduce<bf16, smallGemm<RowDelivery::ToAll>>, bf16, SlowPairs<bf16>>(
        2, 1, call, 1, factor * 100'000'000, [&](auto& scratch, const Scratch& layout) {
          const std::vector<std::uint32_t> arrived{counted};
          scratch.write(0, arrived, layout.arrivalOffset(Scratch::firstEpoch, 0, 1));
        });
  };
  const auto right = run(0, 1);
  CHECK_MESSAGE(right.wrong.empty(), right.wrong);
  for (const int missed : {1, parts}) {  // tiles of rank 1 that are not awaited
    CAPTURE(missed);
    CHECK(isFoundWithLongerDelays(
        [&](std::uint64_t factor) { return !run(static_cast<std::uint32_t>(missed), factor).wrong.empty(); }));
  }
}
#endif

TEST_CASE("GEMM and all-reduce: a rank that computes nothing is named") {
  using Scratch = RowScratch<bf16, RowDelivery::Redundant>;
  const auto outcome = runGemmReduce<GemmReduce<bf16, smallGemm<RowDelivery::Redundant>>, bf16, SlowPairs<bf16>>(
      2, 1, {16, 32, 16, 0, 1}, 1, 3'000'000'000, [](auto&, const Scratch&) {}, 2'000'000'000);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->peer == 1);  // for rank 0, or for the reducers of rank 1 itself
}

}  // namespace mscclpp::test
