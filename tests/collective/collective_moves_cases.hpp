// Cases of the collectives that move data: all-gather, all-to-all, broadcast, gather, scatter.
#pragma once

#include "collective_cases.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

template <CollectiveConfig config>
using AllGatherOf = AllGather<bf16, config>;
template <CollectiveConfig config>
using AllToAllOf = AllToAll<std::int32_t, config>;
template <CollectiveConfig config>
using BroadcastOf = Broadcast<float, config>;
template <CollectiveConfig config>
using GatherOf = Gather<std::int32_t, config>;
template <CollectiveConfig config>
using ScatterOf = Scatter<bf16, config>;

TEST_CASE("all-gather: every protocol, in place and out of place") {
  checkSessions<AllGatherOf>();
  checkCollective<AllGather<bf16, CollectiveConfig{Protocol::Sentinel, 8}>>({8});
}
TEST_CASE("all-to-all: every protocol") {
  checkSessions<AllToAllOf>();
}
TEST_CASE("broadcast: every protocol, from changing roots, in place and out of place") {
  checkSessions<BroadcastOf>();
}
TEST_CASE("all-gather, all-to-all and broadcast: straight into the outputs of the peers") {
  checkOutputs<AllGatherOf>();
  checkOutputs<AllToAllOf>();
  checkOutputs<BroadcastOf>();
}
TEST_CASE("gather: every protocol, to changing roots, in place and out of place") {
  checkSessions<GatherOf>();
}
TEST_CASE("scatter: every protocol, from changing roots, in place and out of place") {
  checkSessions<ScatterOf>();
}

// A ring that is too small causes an intended data race, and after a failed wait a call continues with meaningless
// data.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("all-gather and all-to-all: these checks detect slots that are written before they were read") {
  checkDetectsTooFewSlots<AllGatherOf>();
  checkDetectsTooFewSlots<AllToAllOf>();
}

TEST_CASE("gather: a rank that does not arrive leaves a record, and run() returns false") {
  TesterOf<Gather<std::int32_t, CollectiveConfig{Protocol::LL16}>> tester(3, 40, smallTiles);
  tester.timeout = 1'000'000'000;
  tester.faults.absentRank = 2;
  const auto outcome = tester.run({3, 1, 1}, {{40, 0}});
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->operation == WaitOperation::Packet);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 2);
  CHECK(outcome.failures > 0);
}
#endif

TEST_CASE("rooted collectives: the 32-bit flag wraps") {
  TesterOf<Broadcast<float, CollectiveConfig{Protocol::LL8}>> tester(3, 160, smallTiles, (std::uint64_t{1} << 32) - 6);
  tester.faults.delays = 20'000;
  tester.check({3, 2, 1}, variedCalls<float>(3, 5));
  CHECK(tester.epoch() > std::uint64_t{1} << 32);
}

TEST_CASE("collectives accept what fits their scratch") {
  using Packets = AllToAll<std::int32_t, CollectiveConfig{Protocol::LL16}>;
  Packets::Args args{};
  args.team = {0, 3};
  args.scratch = Packets::scratchFor(9, 3);
  args.count = 12;  // three packs
  CHECK(Packets::accepts(args, {1, 32}));
  args.count = 13;
  CHECK_FALSE(Packets::accepts(args, {1, 32}));

  using Rooted = Broadcast<float, CollectiveConfig{Protocol::Simple}>;
  Rooted::Args rooted{};
  rooted.team = {0, 3};
  rooted.count = 1'000'000;
  rooted.scratch = Rooted::scratchFor(0, 3, {.tilePacks = 8, .blocks = 2, .slots = 4});
  rooted.root = 2;
  CHECK(Rooted::accepts(rooted, {2, 64}));
  CHECK_FALSE(Rooted::accepts(rooted, {1, 64}));
  for (const int root : {-1, 3}) {
    rooted.root = root;
    CHECK_FALSE(Rooted::accepts(rooted, {2, 64}));
  }
  using Bulk = AllGather<bf16, CollectiveConfig{.protocol = Protocol::Bulk, .link = Link::Outputs}>;
  Bulk::Args bulk{};
  bulk.team = {0, 3};
  bulk.count = 1'000'000;
  bulk.scratch = Bulk::scratchFor(0, 3, {.tilePacks = 8, .blocks = 2});
  CHECK(Bulk::accepts(bulk, {2, 64}));
  CHECK(Bulk::accepts(bulk, {1, 64}));
  CHECK_FALSE(Bulk::accepts(bulk, {3, 64}));
  bulk.scratch.partBytes = 64;
  CHECK_FALSE(Bulk::accepts(bulk, {2, 64}));

  // The rule of credits needs more slots, so there are more; what is no power of two stays as it is, and is refused.
  CHECK(rooted.scratch.slots == 8);
  CHECK(Rooted::scratchFor(0, 3, {.slots = 32}).slots == 32);
  rooted.root = 0;
  rooted.scratch = Rooted::scratchFor(0, 3, {.tilePacks = 8, .blocks = 2, .slots = 12});
  CHECK_FALSE(Rooted::accepts(rooted, {2, 64}));
}

}  // namespace mscclpp::test
