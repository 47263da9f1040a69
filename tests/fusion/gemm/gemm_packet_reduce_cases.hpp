// Cases of fusion/gemm/gemm_packet_reduce.hpp: every element of the sum over the ranks of products of random matrices,
// of any size, and the same bits on all ranks.
#pragma once

#include <doctest/doctest.h>

#include "gemm_reduce_tester.hpp"
#include "mscclpp/fusion/gemm/gemm_packet_reduce.hpp"
#include "random_shapes.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

/// hopBytes: 0: an all-reduce to all takes two hops with more than two ranks.
template <class T, RowDelivery delivery, std::size_t hopBytes = 0>
using SmallPacketGemm =
    GemmPacketReduce<T, GemmPacketReduceConfig{.delivery = delivery, .tile = smallTile, .hopBytes = hopBytes}>;

/// Sizes that are and are not multiples of tiles, packs and slices, and random ones.
template <class T, RowDelivery delivery>
void checkPacketSizes() {
  using C = SmallPacketGemm<T, delivery>;
  checkGemmReduce<C, T>(2, 2, {16, 64, 32, 0, 3});
  checkGemmReduce<C, T>(2, 1, {37, 51, 45, 0, 3});
  checkGemmReduce<C, T>(3, 1, {2, 130, 24, 8, 2});  // an empty slice
  checkGemmReduce<C, T>(1, 2, {9, 40, 20, 0, 2});
  std::mt19937 random(static_cast<unsigned>(delivery) + 27);
  for (int i = 0; i < randomShapes(); ++i) {
    const GemmCall call{random() % 40 + 1, random() % 70 + 1, random() % 70 + 1, random() % 3 * 4, 1};
    const int ranks = i % 2 == 0 ? static_cast<int>(random() % 4) + 3 : 2;
    checkGemmReduce<C, T>(ranks, static_cast<int>(random() % 2) + 1, call);
  }
}

TEST_CASE("GEMM and all-reduce in packets, in one hop") {
  checkPacketSizes<bf16, RowDelivery::Redundant>();
}
TEST_CASE("GEMM and all-reduce in packets, in two hops") {
  checkPacketSizes<f16, RowDelivery::ToAll>();
}
// 37 rows of 51 columns, as 64, are 4736 bytes: with 3 ranks those of two hops, with 12 rows less those of one.
TEST_CASE("GEMM and all-reduce in packets, in one hop or two by the size of a call") {
  using C = SmallPacketGemm<f16, RowDelivery::ToAll, 2500>;
  checkGemmReduce<C, f16>(3, 2, {37, 51, 20, 0, 3, 3, 12});
  checkGemmReduce<C, f16>(6, 1, {16, 64, 16, 0, 3, 2, 7});
}
TEST_CASE("GEMM and reduce-scatter in packets") {
  checkPacketSizes<bf16, RowDelivery::ToOwner>();
  using C = SmallPacketGemm<bf16, RowDelivery::ToOwner>;
  checkGemmReduce<C, bf16>(5, 1, {33, 70, 16, 0, 3, 3, 11});
}
template <RowDelivery delivery>
void checkRankOrder() {
  using C = SmallPacketGemm<bf16, delivery>;
  const auto outcome =
      runGemmReduce<C, bf16, CancellingPairs<bf16>>(6, 1, {12, 40, 24, 0, 1}, -1, 0, [](const auto&, const auto&) {});
  CHECK_FALSE(outcome.record);
  CHECK_MESSAGE(outcome.wrong.empty(), outcome.wrong);
}
TEST_CASE("GEMMs in packets: the sum is in rank order") {
  checkRankOrder<RowDelivery::Redundant>();
  checkRankOrder<RowDelivery::ToAll>();
  checkRankOrder<RowDelivery::ToOwner>();
}
template <RowDelivery delivery>
void checkOneOfPairs() {
  checkGemmReduce<SmallPacketGemm<bf16, delivery>, bf16, FirstOfPairs<bf16>>(3, 1, {21, 43, 24, 0, 2});
}
TEST_CASE("GEMMs in packets, with one result for two columns") {
  checkOneOfPairs<RowDelivery::Redundant>();
  checkOneOfPairs<RowDelivery::ToAll>();
  checkOneOfPairs<RowDelivery::ToOwner>();
}
template <RowDelivery delivery>
void checkScaledPackets() {
  using C = GemmPacketReduce<bf16, GemmPacketReduceConfig{.delivery = delivery, .tile = ofFp8(smallTile)}, f8e4m3>;
  checkGemmReduce<C, bf16, ScalePairs<bf16>>(2, 2, {16, 64, 64, 0, 2});
  checkGemmReduce<C, bf16, ScalePairs<bf16>>(3, 1, {21, 43, 45, 0, 3, 1, 5});
}
TEST_CASE("GEMMs in packets, of fp8 with scales") {
  checkScaledPackets<RowDelivery::Redundant>();
  checkScaledPackets<RowDelivery::ToOwner>();
  using C = GemmPacketReduce<bf16, GemmPacketReduceConfig{.tile = ofFp8(depthTile)}, f8e4m3>;
  checkGemmReduce<C, bf16, ScalePairs<bf16>>(2, 1, {13, 70, 400, 16, 1});
  if (Backend<32>::onGpu) checkGemmReduce<C, bf16, ScalePairs<bf16>>(2, 8, {32, 1100, 1040, 0, 3});
}
TEST_CASE("GEMM and all-reduce in packets, tiles of warps that divide the depth") {
  using C = GemmPacketReduce<bf16, GemmPacketReduceConfig{.tile = depthTile}>;
  checkGemmReduce<C, bf16>(2, 1, {13, 70, 200, 0, 1});
  if (Backend<32>::onGpu) checkGemmReduce<C, bf16>(2, 8, {32, 1100, 520, 0, 3});
}

// In one kernel, as a persistent one makes them: slots are reused.
TEST_CASE("GEMMs in packets, many calls in a kernel") {
  constexpr int repeats = Backend<32>::onGpu ? 34'000 : 10;
  checkGemmReduce<SmallPacketGemm<bf16, RowDelivery::Redundant>, bf16>(2, 1, {5, 33, 16, 0, 3, repeats});
  checkGemmReduce<SmallPacketGemm<f16, RowDelivery::ToAll>, f16>(3, 1, {5, 33, 16, 0, 3, repeats});
  checkGemmReduce<SmallPacketGemm<bf16, RowDelivery::ToOwner>, bf16>(2, 1, {5, 33, 16, 0, 3, repeats});
}

TEST_CASE("GEMM and all-reduce in packets: a late rank, and one that computes nothing") {
  using C = SmallPacketGemm<bf16, RowDelivery::Redundant>;
  const auto run = [](std::uint64_t delay, std::uint64_t timeout) {
    return runGemmReduce<C, bf16, SlowPairs<bf16>>(
        2, 1, {16, 64, 16, 0, 1}, 1, delay, [](auto&, const auto&) {}, timeout);
  };
  const auto late = run(20'000'000, waitTimeout);
  CHECK_FALSE(late.record);
  CHECK_MESSAGE(late.wrong.empty(), late.wrong);
  GemmOutcome outcome;
  REQUIRE(isFoundWithLongerDelays([&](std::uint64_t factor) {
    outcome = run(factor * 700'000'000, 300'000'000);
    return outcome.record.has_value();
  }));
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->operation == WaitOperation::Packet);
}

// These have an intended data race.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("GEMM and all-reduce in packets: the checks detect packets that count before they arrive") {
  using C = SmallPacketGemm<bf16, RowDelivery::Redundant>;
  const auto run = [](const std::vector<std::uint64_t>& word, std::uint64_t factor) {
    return runGemmReduce<C, bf16, SlowPairs<bf16>>(
        2, 1, {16, 32, 16, 0, 1}, 1, factor * 100'000'000, [&](auto& scratch, const auto& layout) {
          scratch.write(0, word, layout.offset(C::Scratch::firstEpoch, 0, 1, 0));
        });
  };
  const auto right = run({Sentinel::poison, Sentinel::poison}, 1);
  CHECK_MESSAGE(right.wrong.empty(), right.wrong);
  CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) { return !run({0, 0}, factor).wrong.empty(); }));
}
#endif

}  // namespace mscclpp::test
