// Cases of collective/send_receive.hpp and pair_session.hpp.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "collective_tester.hpp"
#include "mscclpp/collective/send_receive.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

/// A call of a rank in a plan. destination and origin are -2 in a round in which the rank makes no call.
struct PairCall {
  int destination;
  int origin;
  std::size_t count;
  std::size_t receivedCount;
};

inline constexpr int maxRounds = 24;
inline constexpr int maxPairRanks = 4;
inline constexpr std::size_t progressOffset = 64;
using PairElement = std::int32_t;

/// The parameters of the ranks of a test.
struct PairParameters {
  Window<> scratch, inputs, outputs, counters, barriers;
  int ranks;
  int rounds;
  std::size_t capacity;  ///< elements of a message; the distance of the messages is one more
  PipelineShape shape;
  BoundedWait wait;
  std::uint64_t delays;  ///< nanoseconds, before some calls
  int lateRank;          ///< starts once rank 0 has completed `lateUntil` rounds; -1: none
  int lateUntil;
  PairCall call[maxPairRanks][maxRounds];
};

/// Makes the calls of a rank in one launch. Ranks do not wait for each other between the calls.
template <class Collective>
struct PairBody {
  PairParameters p;

  MSCCLPP_HOST_DEVICE std::uint64_t* progress() const {
    return reinterpret_cast<std::uint64_t*>(p.barriers.at(0, progressOffset));
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    typename Collective::Args args{};
    args.team = decltype(args.team)(rank, p.ranks);
    args.window = p.scratch;
    args.scratch = Collective::scratchFor(p.capacity, p.ranks, p.shape);
    args.wait = p.wait;
    auto wait = p.wait;
    auto* barrier = reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    if (rank == p.lateRank) {
      const auto needed = static_cast<std::uint64_t>(p.lateUntil);
      wait.until({WaitOperation::Unknown, rank, 0, 0, needed}, [&](std::uint64_t& seen) {
        seen = arch::load<arch::Order::Relaxed, arch::Scope::System>(progress());
        return seen >= needed;
      });
    }
    for (int round = 0; round < p.rounds; ++round) {
      const PairCall& call = p.call[rank][round];
      if (call.destination == -2) continue;
      spendTime(p.delays * (static_cast<std::uint64_t>(round * 5 + rank * 3) % 4));
      args.destination = call.destination;
      args.origin = call.origin;
      args.count = call.count;
      args.receivedCount = call.receivedCount;
      const std::size_t at = static_cast<std::size_t>(round) * (p.capacity + 1);
      const auto* input = reinterpret_cast<const PairElement*>(p.inputs.at(rank)) + at;
      auto* output = reinterpret_cast<PairElement*>(p.outputs.at(rank)) + at;
      auto* counters = reinterpret_cast<std::uint32_t*>(p.counters.at(rank)) + 2 * at;
      const PartSource<PairElement> source{ArraySource<PairElement>(input), counters, call.count};
      const PartSink<PairElement> sink{ArraySink<PairElement>(output), counters + p.capacity, call.receivedCount, 0};
      if (!Collective::run(grid, args, source, sink)) {
        arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(
            reinterpret_cast<std::uint32_t*>(p.barriers.at(rank, barrierBytes)), 1u);
      }
      barrier->sync(grid, wait);
      if (rank == 0 && grid.blockIndex() == 0 && grid.block().rank() == 0) {
        arch::store<arch::Order::Relaxed, arch::Scope::System>(progress(), static_cast<std::uint64_t>(round) + 1);
      }
    }
  }
};

/// A plan of calls: for each round, for each rank where it sends to (-1: nowhere) and how much.
struct PairPlan {
  std::vector<std::vector<int>> destinations;
  std::vector<std::vector<std::size_t>> counts;

  void add(const std::vector<int>& to, std::size_t count) {
    destinations.push_back(to);
    counts.emplace_back(to.size(), count);
  }
};

/// Random permutations of the ranks with gaps, and random counts; some zero, and many of whole messages.
inline PairPlan randomPlan(int ranks, std::size_t capacity, unsigned seed) {
  std::mt19937 random(seed);
  PairPlan plan;
  for (int round = 0; round < maxRounds; ++round) {
    std::vector<int> to(static_cast<std::size_t>(ranks));
    std::iota(to.begin(), to.end(), 0);
    std::shuffle(to.begin(), to.end(), random);
    std::vector<std::size_t> counts;
    for (auto& destination : to) {
      if (random() % 3 == 0) destination = -1;
      const auto kind = random() % 4;
      counts.push_back(kind == 0 ? capacity : kind == 1 ? random() % 9 : random() % (capacity + 1));
    }
    plan.destinations.push_back(to);
    plan.counts.push_back(counts);
  }
  return plan;
}

/// Runs plans with scratch that persists between launches, and checks them.
template <class Collective>
class PairTester {
 public:
  using Scratch = typename Collective::Scratch;
  std::uint64_t timeout = waitTimeout;
  PairParameters p{};

  PairTester(int ranks, std::size_t capacity, const PipelineShape& shape)
      : layout_(Collective::scratchFor(capacity, ranks, shape)),
        scratch_(backend_.allocate(ranks, layout_.windowBytes(), Scratch::initialByte)) {
    p.ranks = ranks;
    p.capacity = capacity;
    p.shape = shape;
    p.lateRank = -1;
  }
  /// Sets the epochs of all pairs, on both sides, and the credits of the call before.
  void setEpochs(std::uint64_t epoch) {
    for (int rank = 0; rank < p.ranks; ++rank) {
      for (int peer = 0; peer < p.ranks; ++peer) {
        setEpoch(rank, layout_.senderOffset(peer), epoch);
        if (peer != rank) setEpoch(rank, layout_.receiverOffset(peer, rank), epoch);
      }
    }
  }
  std::uint64_t epoch(int rank, int receiver) const {
    const auto words = scratch_.template read<std::uint64_t>(rank);
    return words[(layout_.senderOffset(receiver) + Scratch::epochsInPart) / sizeof(std::uint64_t)];
  }
  /// Forges the credit that `receiver` has given to rank 0.
  void forgeCredit(int receiver) {
    const auto offset = layout_.senderOffset(receiver) + Scratch::pairInPart + layout_.pair.creditOffset(1);
    scratch_.write(0, std::vector<std::uint64_t>{1000}, offset);
  }

  struct Outcome {
    std::optional<WaitRecord> record;
    bool wrong;
  };
  Outcome run(Shape shape, const PairPlan& plan) {
    shape.ranks = p.ranks;
    const auto ranks = static_cast<std::size_t>(p.ranks);
    p.rounds = static_cast<int>(plan.destinations.size());
    REQUIRE(p.rounds <= maxRounds);
    const std::size_t stride = p.capacity + 1;
    const std::size_t elements = plan.destinations.size() * stride;
    auto inputs = backend_.allocate(p.ranks, elements * sizeof(PairElement), 0);
    auto outputs = backend_.allocate(p.ranks, elements * sizeof(PairElement), poisonByte);
    auto counters = backend_.allocate(p.ranks, 2 * elements * sizeof(std::uint32_t), 0);
    auto barriers = backend_.allocate(p.ranks, 2 * barrierBytes, 0);
    std::vector<std::vector<PairElement>> data, expected;
    std::vector<std::vector<std::uint32_t>> expectedCalls(ranks, std::vector<std::uint32_t>(2 * elements, 0));
    for (int rank = 0; rank < p.ranks; ++rank) {
      data.push_back(inputsOf<PairElement>(elements, 2, ++seed_)[0]);
      inputs.write(rank, data.back());
      expected.push_back(outputs.template read<PairElement>(rank));
    }
    for (std::size_t round = 0; round < plan.destinations.size(); ++round) {
      for (std::size_t rank = 0; rank < ranks; ++rank) p.call[rank][round] = {-1, -1, 0, 0};
      const std::size_t at = round * stride;
      for (std::size_t from = 0; from < ranks; ++from) {
        const int destination = plan.destinations[round][from];
        if (destination < 0) continue;
        const auto to = static_cast<std::size_t>(destination);
        const std::size_t count = plan.counts[round][from];
        p.call[from][round].destination = destination;
        p.call[from][round].count = count;
        p.call[to][round].origin = static_cast<int>(from);
        p.call[to][round].receivedCount = count;
        std::copy_n(data[from].begin() + static_cast<std::ptrdiff_t>(at), count,
                    expected[to].begin() + static_cast<std::ptrdiff_t>(at));
        for (std::size_t pack = 0; pack < ceilDivide(count, packSize<PairElement>); ++pack) {
          expectedCalls[from][2 * at + pack] = 1;
          expectedCalls[to][2 * at + p.capacity + pack] = 1;
        }
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        auto& call = p.call[rank][round];
        if (call.destination < 0 && call.origin < 0) call.destination = call.origin = -2;
        typename Collective::Args args{};
        args.team = {static_cast<int>(rank), p.ranks};
        args.scratch = layout_;
        args.destination = std::max(call.destination, -1);
        args.origin = std::max(call.origin, -1);
        args.count = call.count;
        args.receivedCount = call.receivedCount;
        REQUIRE(Collective::accepts(args, {shape.blocks, shape.warps}));
      }
    }
    p.scratch = scratch_.window();
    p.inputs = inputs.window();
    p.outputs = outputs.window();
    p.counters = counters.window();
    p.barriers = barriers.window();
    p.wait = backend_.wait(timeout);
    Outcome outcome{backend_.run(shape, PairBody<Collective>{p}), false};
    for (int rank = 0; rank < p.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      outcome.wrong |= firstDifference(outputs.template read<PairElement>(rank), expected[r]) != -1;
      outcome.wrong |= counters.template read<std::uint32_t>(rank) != expectedCalls[r];
      const auto failures = barriers.template read<std::uint32_t>(rank)[barrierBytes / sizeof(std::uint32_t)];
      if (!outcome.record) outcome.wrong |= failures != 0;
    }
    return outcome;
  }
  void check(const Shape& shape, const PairPlan& plan) {
    const auto outcome = run(shape, plan);
    if (outcome.record) FAIL_CHECK(describe(*outcome.record));
    CHECK_FALSE(outcome.wrong);
  }

 private:
  void setEpoch(int rank, std::size_t part, std::uint64_t epoch) {
    scratch_.write(rank, std::vector<std::uint64_t>(epochWords, epoch), part + Scratch::epochsInPart);
    const std::size_t credits = part + Scratch::pairInPart + layout_.pair.creditOffset(0);
    scratch_.write(rank, std::vector<std::uint64_t>(2, epoch - 1), credits);
  }

  Scratch layout_;
  Backend<warpWidthFor(Collective::configuration.protocol)> backend_;
  using Buffers = decltype(std::declval<Backend<warpWidthFor(Collective::configuration.protocol)>>().allocate(0, 0, 0));
  Buffers scratch_;
  unsigned seed_ = 0;
};

template <CollectiveConfig config>
void checkPairs() {
  constexpr Protocol protocol = config.protocol;
  CAPTURE(protocol);
  const std::size_t capacity = isPipelined(protocol) ? 1001 : 180;
  const PipelineShape shape{.tilePacks = 8, .blocks = 3, .slots = 4};
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    PairTester<SendReceive<PairElement, config>> tester(ranks, capacity, shape);
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const int warps = warpWidthFor(protocol) == 4 || ranks == 2 ? 2 : 1;
      // A pipeline: fewer blocks than rings in a direction, as many, and more.
      const int blocks = isPipelined(protocol) ? (ranks == 2 ? 3 * static_cast<int>(seed) : 3) : 1 + seed % 2;
      tester.check({ranks, blocks, warps}, randomPlan(ranks, capacity, seed));
      tester.p.delays = 20'000;
    }
  }
}

TEST_CASE("send and receive: random permutations of the ranks, in which some do not take part") {
  checkPairs<CollectiveConfig{Protocol::LL16}>();
  checkPairs<CollectiveConfig{Protocol::LL128Ordered}>();
  checkPairs<CollectiveConfig{Protocol::Sentinel}>();
  checkPairs<CollectiveConfig{Protocol::Simple}>();
  checkPairs<CollectiveConfig{Protocol::Simple, 0, 1}>();
}

using LL16Pairs = SendReceive<PairElement, CollectiveConfig{Protocol::LL16}>;

/// Rank 0 sends `count` messages to rank 1, and then some to rank 2.
inline PairPlan planOfTwoReceivers(int count) {
  PairPlan plan;
  for (int i = 0; i < count; ++i) plan.add({1, -1, -1}, 33);
  for (int i = 0; i < 12; ++i) plan.add({2, -1, -1}, 33);
  return plan;
}

TEST_CASE("send and receive: a receiver that is late does not delay messages to others") {
  PairTester<LL16Pairs> tester(3, 180, {});
  tester.p.lateRank = 1;
  tester.p.lateUntil = 4 + 12;  // had rank 0 to wait for rank 1 before, both would time out
  tester.check({3, 1, 1}, planOfTwoReceivers(4));
  CHECK(tester.epoch(0, 1) == 1 + 4);
  CHECK(tester.epoch(0, 2) == 1 + 12);

  PairTester<LL16Pairs> another(3, 180, {});
  another.p.lateRank = 1;
  another.p.lateUntil = 5 + 12;
  another.timeout = 500'000'000;
  const auto outcome = another.run({3, 1, 1}, planOfTwoReceivers(5));  // the fifth message needs a credit
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
}

// After a failed wait, and with a credit that was not given, there are data races.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("send and receive: these checks detect a credit that was not given") {
  PairTester<LL16Pairs> tester(3, 180, {});
  tester.forgeCredit(1);
  tester.p.lateRank = 1;
  tester.p.lateUntil = 8 + 12;
  tester.timeout = 500'000'000;
  const auto outcome = tester.run({3, 1, 1}, planOfTwoReceivers(8));
  CHECK(outcome.record.has_value());
  CHECK(outcome.wrong);
}
#endif

TEST_CASE("send and receive: the 32-bit flag of a pair wraps") {
  PairTester<LL16Pairs> tester(2, 180, {});
  tester.setEpochs((std::uint64_t{1} << 32) - 7);
  tester.p.delays = 20'000;
  tester.check({2, 2, 1}, randomPlan(2, 180, 9));
  CHECK(std::max(tester.epoch(0, 1), tester.epoch(1, 0)) > std::uint64_t{1} << 32);
}

TEST_CASE("send and receive: when slots are cleared, a sender has none, and its other pairs stay as they are") {
  PairTester<LL16Pairs> tester(2, 180, {});
  constexpr std::uint64_t clearing = PackProtocolOf<Protocol::LL16>::Type::clearInterval;
  tester.setEpochs(clearing - 4);
  PairPlan plan;
  for (int i = 0; i < maxRounds / 2; ++i) {
    plan.add({1, 0}, 33);
    plan.add({0, 1}, 33);  // each to itself
  }
  tester.check({2, 1, 1}, plan);
  for (const int receiver : {0, 1}) CHECK(tester.epoch(0, receiver) > clearing + 4);
}

TEST_CASE("send and receive: what is accepted") {
  LL16Pairs::Args args{};
  args.team = {1, 3};
  args.scratch = LL16Pairs::scratchFor(8, 3);
  const auto accepts = [&](int destination, int origin, std::size_t count, std::size_t receivedCount) {
    args.destination = destination;
    args.origin = origin;
    args.count = count;
    args.receivedCount = receivedCount;
    return LL16Pairs::accepts(args, {1, 32});
  };
  CHECK(accepts(2, 0, 8, 3));
  CHECK(accepts(-1, 0, 0, 8));
  CHECK(accepts(1, 1, 8, 8));
  CHECK_FALSE(accepts(2, 0, 9, 3));
  CHECK_FALSE(accepts(2, 0, 3, 9));
  CHECK_FALSE(accepts(1, 1, 8, 7));
  CHECK_FALSE(accepts(1, 0, 8, 8));
  CHECK_FALSE(accepts(3, 0, 8, 8));
  CHECK_FALSE(accepts(0, -2, 8, 8));

  using Pipelined = SendReceive<PairElement, CollectiveConfig{Protocol::Simple}>;
  Pipelined::Args tiles{};
  tiles.team = {1, 3};
  tiles.scratch = Pipelined::scratchFor(0, 3, {.tilePacks = 8, .blocks = 4, .slots = 4});
  tiles.count = tiles.receivedCount = 100'000;
  tiles.destination = 0;
  tiles.origin = 2;
  CHECK(Pipelined::accepts(tiles, {8, 64}));
  CHECK(Pipelined::accepts(tiles, {3, 64}));
  CHECK(Pipelined::accepts(tiles, {2, 64}));
  CHECK_FALSE(Pipelined::accepts(tiles, {1, 64}));
  CHECK_FALSE(Pipelined::accepts(tiles, {maxBlocks + 1, 64}));
  tiles.origin = -1;
  CHECK(Pipelined::accepts(tiles, {1, 64}));
}

}  // namespace mscclpp::test
