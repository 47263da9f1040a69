// Cases of the collectives whose ranks contribute different numbers of elements: all_gather_v.hpp,
// reduce_scatter_v.hpp, all_to_all_v.hpp.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "collective_cases.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"
#include "variable_counts_tester.hpp"

namespace mscclpp::test {

template <CollectiveConfig config>
using AllGatherVOf = AllGatherV<bf16, config>;
template <CollectiveConfig config>
using ReduceScatterVOf = ReduceScatterV<bf16, Sum, config>;
template <CollectiveConfig config>
using AllToAllVOf = AllToAllV<std::int32_t, config>;

/// Makes calls of a collective whose counts are at most `capacity` elements.
class CallMaker {
 public:
  CallMaker(int ranks, std::size_t capacity, unsigned seed)
      : ranks_(static_cast<std::size_t>(ranks)), capacity_(capacity), random_(seed) {}

  /// Each count by f(from, to). bound: args.count; 0: the largest count.
  template <class F>
  VariableCall make(const F& f, std::size_t bound = 0) {
    VariableCall call{{}, bound, random_() % 2 == 0};
    for (std::size_t from = 0; from < ranks_; ++from) {
      call.counts.emplace_back();
      for (std::size_t to = 0; to < ranks_; ++to) {
        call.counts.back().push_back(f(from, to));
        call.bound = std::max(call.bound, call.counts.back().back());
      }
    }
    return call;
  }
  /// Random counts, of which about half are zero.
  VariableCall random() {
    const std::size_t most = random_() % 3 == 0 ? capacity_ : 40;
    return make([&](std::size_t, std::size_t) { return random_() % 2 == 0 ? 0 : random_() % (most + 1); });
  }
  /// All zero, but what rank `r` contributes to, or gets from, rank `to`.
  VariableCall only(std::size_t r, std::size_t to, std::size_t count) {
    return make(
        [&](std::size_t from, std::size_t other) { return other == to && (from == r || from == 0) ? count : 0; });
  }
  /// Rank `r` has all: in an all-to-all, it sends to every rank, and no other does.
  VariableCall onlySender(std::size_t r, std::size_t count) {
    return make([&](std::size_t from, std::size_t to) { return from == r || (from == 0 && to == r) ? count : 0; });
  }
  /// A few elements everywhere, but for a rank with many.
  VariableCall skewed(std::size_t r, std::size_t count) {
    return make([&](std::size_t, std::size_t to) { return to == r ? count : 1 + random_() % 3; });
  }
  VariableCall equal(std::size_t count) {
    return make([&](std::size_t, std::size_t) { return count; });
  }

  /// Edge cases, back to back.
  std::vector<VariableCall> edgeCases() {
    const std::size_t last = ranks_ - 1;
    return {only(0, last, capacity_),
            onlySender(last, capacity_),
            onlySender(last, 1),
            make([&](std::size_t, std::size_t) { return std::size_t{0}; }),             // returns at once
            make([&](std::size_t, std::size_t) { return std::size_t{0}; }, capacity_),  // a call without data
            skewed(0, capacity_),
            skewed(last, capacity_ - 1),
            equal(capacity_),
            only(last, 0, 3),
            make([&](std::size_t from, std::size_t to) { return from == to ? capacity_ : to; }),
            make([&](std::size_t from, std::size_t to) { return (3 * from + to) % 5; }, capacity_)};
  }
  std::vector<VariableCall> randomCalls(int calls) {
    std::vector<VariableCall> result;
    for (int call = 0; call < calls; ++call) result.push_back(random());
    return result;
  }

 private:
  std::size_t ranks_;
  std::size_t capacity_;
  std::mt19937 random_;
};

/// Checks a collective with these numbers of ranks.
template <class C>
void checkVariable(const std::vector<int>& teams) {
  using T = typename C::Element;
  constexpr Protocol protocol = C::configuration.protocol;
  const std::size_t capacity = capacityPacks * packSize<T>;
  CAPTURE(protocol);
  for (const int ranks : teams) {
    CAPTURE(ranks);
    const Shape shape = shapeFor(protocol, ranks);
    CallMaker calls(ranks, capacity, static_cast<unsigned>(ranks));
    VariableTesterOf<C> tester(ranks, capacity, smallTiles);
    tester.check(shape, calls.edgeCases());
    tester.faults.delays = 20'000;
    tester.check(shape, calls.randomCalls(12));
    // Ranks that have no data to wait for run ahead of one that takes long over its own.
    tester.faults = {};
    tester.faults.slowRank = ranks - 1;
    tester.faults.sinkDelay = 20'000;
    const auto slow = static_cast<std::size_t>(ranks) - 1;
    std::vector<VariableCall> ahead = calls.randomCalls(4);
    for (int call = 0; call < 6; ++call) ahead.push_back(calls.only(0, call % 3 == 2 ? slow : 0, 8 * packSize<T>));
    tester.check(shape, ahead);
    tester.faults = {};
    if (isPipelined(protocol)) {  // many more tiles than slots
      const std::size_t count = 16 * 17 * packSize<T> + 1;
      tester.check(shape, {calls.skewed(slow, count), calls.only(slow, 0, count), calls.equal(5),
                           calls.onlySender(0, count + 2), calls.equal(count)});
    }
  }
}

/// Checks a collective over all sessions. Of<config>: the collective.
template <template <CollectiveConfig> class Of>
void checkVariableSessions() {
  checkVariable<Of<CollectiveConfig{Protocol::LL16}>>(thinned({1, 2, 3, 5, 8}, {1, 3, 5}));
  checkVariable<Of<CollectiveConfig{Protocol::LL128Ordered}>>(thinned({2, 3}, {2}));
  checkVariable<Of<CollectiveConfig{Protocol::Sentinel}>>(thinned({2, 5}, {2}));
  checkVariable<Of<CollectiveConfig{Protocol::Simple}>>(thinned({1, 2, 3, 5, 8}, {1, 3, 5}));
  if constexpr (!Backend<>::onGpu) {  // nvcc takes long for each
    checkVariable<Of<CollectiveConfig{Protocol::LL8}>>({3});
    checkVariable<Of<CollectiveConfig{Protocol::Simple, 3, 1}>>({3});
  }
  if constexpr (Backend<>::onGpu) checkVariable<Of<CollectiveConfig{Protocol::LL128, 2}>>({2});
#if !defined(__CUDACC__)
  // Parts of arrays in one piece, as a CPU rank that is one thread copies them.
  using Serial = Of<CollectiveConfig{Protocol::Simple}>;
  constexpr auto pack = static_cast<std::size_t>(packSize<typename Serial::Element>);
  VariableTesterOf<Serial, true> serial(3, 0, {.tilePacks = 8, .blocks = 1, .slots = 4});
  CallMaker calls(3, 8 * 17 * pack + 1, 5);
  serial.check({3, 1, 1}, calls.edgeCases());
  serial.check({3, 1, 1}, calls.randomCalls(12));
#endif
}

TEST_CASE("all-gather-v: every protocol, in place and out of place") {
  checkVariableSessions<AllGatherVOf>();
  checkVariable<AllGatherV<bf16, CollectiveConfig{Protocol::LL16, 4}>>({4});
}
TEST_CASE("reduce-scatter-v: every protocol, in place and out of place") {
  checkVariableSessions<ReduceScatterVOf>();
}
TEST_CASE("all-to-all-v: every protocol") {
  checkVariableSessions<AllToAllVOf>();
}

/// An AllGatherV whose slots are reused by a rule of choice.
template <CollectiveConfig config, SlotReuse reuse>
struct GatherWithRule : EqualCounts<std::int32_t, config.common(), reuse> {
  using Base = EqualCounts<std::int32_t, config.common(), reuse>;
  using typename Base::Index;
  using Args = VariableCountsArgs<config.ranks, typename Base::Scratch>;

  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    return Base::template withSession<GatherWithRule>(grid, args, TraceId::AllGather, [&](auto& session) {
      const int rank = args.team.rank();
      const WholeMessage<std::int32_t, Index> contribution(args.counts[rank], args.count);
      const VariableSlices<std::int32_t, Index> slices(args.counts, args.offsets, args.count);
      const OffsetSink<Sink> ownPart(sink, args.offsets[rank]);
      return session.run(ownSlice(contribution) | from(source) | share<0>() | into(ownPart),
                         eachPeer(slices) | receive<0>() | into(sink));
    });
  }
};

// Slots that are written too early are an intended data race, and after a failed wait a call continues with meaningless
// data.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("all-gather-v: these checks detect slots that are reused by the data although some ranks need none") {
  const std::size_t count = capacityPacks * packSize<std::int32_t>;
  const auto isWrong = [&](auto& tester, std::uint64_t factor, std::uint64_t timeout) {
    CallMaker calls(2, count, 1);
    tester.faults.slowRank = 1;
    tester.faults.sinkDelay = factor * 1'000'000;
    tester.timeout = timeout;
    const auto outcome = tester.run({2, 1, 1}, std::vector<VariableCall>(8, calls.only(0, 0, count)));
    return outcome.record || outcome.difference != "";
  };
  constexpr CollectiveConfig config{Protocol::LL16};
  CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) {
    VariableTesterOf<GatherWithRule<config, SlotReuse::ByData>> tester(2, count, smallTiles);
    return isWrong(tester, factor, factor * 500'000'000);
  }));
  VariableTesterOf<GatherWithRule<config, SlotReuse::ByCredits>> right(2, count, smallTiles);
  CHECK_FALSE(isWrong(right, 1, waitTimeout));
}
#endif

TEST_CASE("all-to-all-v: no slot keeps a flag until it repeats") {
  using C = AllToAllV<std::int32_t, CollectiveConfig{Protocol::LL16}>;
  const std::size_t count = capacityPacks * packSize<std::int32_t>;
  constexpr int ranks = 3;
  VariableTesterOf<C> tester(ranks, count, smallTiles, (std::uint64_t{1} << 20) - 5);
  const auto layout = C::scratchFor(count, ranks);
  const auto flagsAreCleared = [&](int rank) {
    const auto bytes = tester.scratch(rank);
    return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(layout.slotsOffset()), bytes.end(),
                       [](std::byte byte) { return byte == std::byte{0}; });
  };
  CallMaker calls(ranks, count, 1);
  tester.check({ranks, 1, 1}, std::vector<VariableCall>(4, calls.equal(count)));
  CHECK(tester.epoch() == std::uint64_t{1} << 20);
  for (int rank = 0; rank < ranks; ++rank) CHECK_FALSE(flagsAreCleared(rank));
  // What a rank sends, to itself or to others, says nothing about what it receives.
  const auto toItself = calls.make([&](std::size_t from, std::size_t to) { return from == to ? count : 0; });
  tester.check({ranks, 1, 1}, std::vector<VariableCall>(4, toItself));
  for (int rank = 0; rank < ranks; ++rank) CHECK(flagsAreCleared(rank));
}

TEST_CASE("all-to-all-v: the 32-bit flag wraps") {
  using C = AllToAllV<std::int32_t, CollectiveConfig{Protocol::LL16}>;
  const std::size_t count = capacityPacks * packSize<std::int32_t>;
  VariableTesterOf<C> tester(3, count, smallTiles, (std::uint64_t{1} << 32) - 6);
  tester.faults.delays = 20'000;
  CallMaker calls(3, count, 9);
  tester.check({3, 2, 1}, calls.randomCalls(14));
  CHECK(tester.epoch() > std::uint64_t{1} << 32);
}

TEST_CASE("collectives with a count for each rank accept what fits their scratch") {
  using Gather = AllGatherV<std::int32_t, CollectiveConfig{Protocol::LL16}>;
  Gather::Args args{};
  args.team = {0, 3};
  args.scratch = Gather::scratchFor(9, 3);
  args.count = 12;  // three packs
  args.counts[1] = 12;
  args.counts[3] = 100;  // of no rank
  CHECK(Gather::accepts(args, {1, 32}));
  args.counts[1] = 13;
  CHECK_FALSE(Gather::accepts(args, {1, 32}));
  args.count = 13;
  CHECK_FALSE(Gather::accepts(args, {1, 32}));

  using Exchange = AllToAllV<float, CollectiveConfig{Protocol::Simple}>;
  Exchange::Args exchange{};
  exchange.team = {1, 3};
  exchange.count = 1'000'000;
  exchange.scratch = Exchange::scratchFor(0, 3, {.tilePacks = 8, .blocks = 2, .slots = 4});
  CHECK(exchange.scratch.slots == 8);  // credits need more slots, so there are more
  exchange.sendCounts[2] = exchange.receiveCounts[0] = 1'000'000;
  CHECK(Exchange::accepts(exchange, {2, 64}));
  CHECK_FALSE(Exchange::accepts(exchange, {1, 64}));
  exchange.sendCounts[2] = 1'000'001;
  CHECK_FALSE(Exchange::accepts(exchange, {2, 64}));
  exchange.sendCounts[2] = 0;
  exchange.receiveCounts[0] = 1'000'001;
  CHECK_FALSE(Exchange::accepts(exchange, {2, 64}));
  exchange.receiveCounts[0] = 0;
  exchange.sendCounts[1] = 5;
  CHECK_FALSE(Exchange::accepts(exchange, {2, 64}));
  exchange.receiveCounts[1] = 5;
  CHECK(Exchange::accepts(exchange, {2, 64}));
}

}  // namespace mscclpp::test
