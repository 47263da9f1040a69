// Cases of collective/bulk_session.hpp: the stages of three collectives with small rings, parts and blocks.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/collective/bulk_session.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

inline constexpr int maxBulkCalls = 16;
inline constexpr int maxBulkRanks = 8;

/// A call: bytes of the contribution or message of a rank, and where arrays begin, in bytes from a 128-byte boundary.
/// On the last rank the output begins `lastShift` bytes later than on the others.
struct BulkCall {
  std::size_t count;
  int root = 0;
  int inputShift = 0;
  int outputShift = 0;
  int lastShift = 0;
  bool inPlace = false;  ///< of the all-gather
};

/// The parameters of the ranks: each call has a strip of the inputs and of the outputs of a rank.
struct BulkSessionParameters {
  Window<> scratch, epochs, inputs, outputs, barriers;
  BulkCounters counters;
  std::size_t strip;
  int ranks;
  int calls;
  BulkCall call[maxBulkCalls];
  BoundedWait wait;
  BoundedWait lateWait;  ///< of the late rank, before it starts
  int absentRank;        ///< makes no call; -1: none
  int lateRank;          ///< starts once rank 0 has made `lateUntil` calls; -1: none
  int lateUntil;
  bool withoutSharedMemory;  ///< on a span of warps
  bool asOneThread;          ///< one thread of one block makes the calls
  std::uint64_t delays;      ///< nanoseconds: ranks wait before some of their calls, in a pattern that differs

  MSCCLPP_HOST_DEVICE std::size_t outputAt(int rank, int index) const {
    const BulkCall& of = call[index];
    return strip * static_cast<std::size_t>(index) +
           static_cast<std::size_t>(of.outputShift + (rank == ranks - 1 ? of.lastShift : 0));
  }
};

/// Where a rank reports, in its `barriers`: how many calls it has made, and which of them failed.
inline constexpr std::size_t bulkProgressOffset = 64;
inline constexpr std::size_t bulkFailureOffset = 128;

using BulkByte = std::uint8_t;

struct BulkAllGather {
  static constexpr bool hasParts = true;
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, const BulkSessionParameters&, const BulkCall& call, int rank,
                                 const Window<>& outputs, const Source& source, const Sink& sink) {
    using namespace stage;
    const WholeMessage<BulkByte, std::size_t> contribution(call.count);
    const RankSlices<BulkByte, std::size_t> slices(call.count);
    const std::size_t first = static_cast<std::size_t>(rank) * call.count;
    const ArraySink<BulkByte> own(sink.data() + first);
    return session.run(ownSlice(contribution) | from(source) | storeToPeers<BulkByte>(outputs, first) | into(own),
                       eachPeer(slices) | awaitStores());
  }
};

struct BulkAllToAll {
  static constexpr bool hasParts = true;
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, const BulkSessionParameters&, const BulkCall& call, int /*rank*/,
                                 const Window<>& outputs, const Source& source, const Sink& sink) {
    using namespace stage;
    const RankSlices<BulkByte, std::size_t> slices(call.count);
    return session.run(ownSlice(slices) | from(source) | into(sink),
                       eachPeer(slices) | from(source) | storeToPeers<BulkByte>(outputs),
                       eachPeer(slices) | awaitStores());
  }
};

struct BulkBroadcast {
  static constexpr bool hasParts = false;
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, const BulkSessionParameters&, const BulkCall& call, int /*rank*/,
                                 const Window<>& outputs, const Source& source, const Sink& sink) {
    using namespace stage;
    const WholeMessage<BulkByte, std::size_t> message(call.count);
    return session.run(ownSlice(message, call.root) | from(source) | storeToPeers<BulkByte>(outputs) | into(sink),
                       withPeer(message, call.root) | awaitStores());
  }
};

/// Makes the calls in one launch, between grid barriers.
template <class Stages, BulkSessionShape shape>
struct BulkSessionBody {
  BulkSessionParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (p.asOneThread) {
      if (grid.block().rank() == 0) call(rank, cpu::SerialGrid());
    } else if (p.withoutSharedMemory) {
      call(rank, grid.warps(0, grid.warpCount()));
    } else {
      call(rank, grid);
    }
  }

 private:
  MSCCLPP_INLINE std::uint64_t* progressOf(int rank) const {
    return reinterpret_cast<std::uint64_t*>(p.barriers.at(rank, bulkProgressOffset));
  }

  template <class GridType>
  MSCCLPP_INLINE void call(int rank, const GridType& grid) const {
    if (rank == p.absentRank) return;
    auto wait = p.wait;
    NoTrace trace;
    const CollectiveArgs<0, BulkCounters> args{.team = Team<>(rank, p.ranks),
                                               .window = p.scratch,
                                               .epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))},
                                               .scratch = p.counters,
                                               .count = 0,
                                               .wait = p.wait};
    auto& barrier = *reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    auto* const failures = reinterpret_cast<std::uint32_t*>(p.barriers.at(rank, bulkFailureOffset));
    if (rank == p.lateRank) {
      const auto needed = static_cast<std::uint64_t>(p.lateUntil);
      auto patience = p.lateWait;
      patience.until({WaitOperation::Unknown, rank, 0, 0, needed}, [&](std::uint64_t& seen) {
        seen = arch::load<arch::Order::Relaxed, arch::Scope::System>(progressOf(0));
        return seen >= needed;
      });
    }
    for (int index = 0; index < p.calls; ++index) {
      if (p.delays != 0 && (index * 5 + rank) % 3 == 0) {
        const auto start = arch::nanoseconds();
        while (arch::nanoseconds() - start < p.delays) arch::backoff(200);
      }
      const BulkCall& of = p.call[index];
      auto* const output = reinterpret_cast<BulkByte*>(p.outputs.at(rank, p.outputAt(rank, index)));
      const std::size_t inputAt = p.strip * static_cast<std::size_t>(index) + static_cast<std::size_t>(of.inputShift);
      const auto* const input = of.inPlace ? output + static_cast<std::size_t>(rank) * of.count
                                           : reinterpret_cast<const BulkByte*>(p.inputs.at(rank, inputAt));
      Window<> outputs{};
      for (int r = 0; r < p.ranks; ++r) outputs.base[r] = p.outputs.at(r, p.outputAt(r, index));
      auto session = makeBulkSession<shape>(grid, args, wait, trace);
      const bool succeeded =
          Stages::run(session, p, of, rank, outputs, ArraySource<BulkByte>(input), ArraySink<BulkByte>(output));
      if (!succeeded) arch::store<arch::Order::Relaxed, arch::Scope::Device>(failures + index, 1u);
      barrier.sync(grid, wait);
      if (grid.blockIndex() == 0 && grid.block().rank() == 0) {
        arch::store<arch::Order::Relaxed, arch::Scope::System>(progressOf(rank), static_cast<std::uint64_t>(index) + 1);
      }
    }
  }
};

inline constexpr BulkSessionShape twoQueues{
    {.chunkBytes = 64, .chunks = 4, .prefetchDepth = 2, .destinations = maxTeamSize}, 2};
inline constexpr BulkSessionShape oneQueue{
    {.chunkBytes = 256, .chunks = 3, .prefetchDepth = 1, .quantum = 2, .destinations = maxTeamSize}, 1};

/// Counters and epochs that persist between launches, and the check of all bytes.
template <class Stages, BulkSessionShape shape = twoQueues>
class BulkSessionTester {
 public:
  BulkSessionParameters p{};
  std::uint64_t timeout = waitTimeout;

  BulkSessionTester(int ranks, int blocks, std::size_t partBytes = 128, std::uint64_t firstEpoch = 1)
      : counters_{partBytes, ranks, blocks},
        scratch_(backend_.allocate(ranks, counters_.windowBytes(), BulkCounters::initialByte)),
        epochs_(backend_.allocate(ranks, epochWords * sizeof(std::uint64_t), 0)) {
    p.ranks = ranks;
    p.absentRank = p.lateRank = -1;
    for (int rank = 0; rank < ranks; ++rank) {
      epochs_.write(rank, std::vector<std::uint64_t>(epochWords, firstEpoch));
      setCounters(rank, firstEpoch - 1);
    }
  }

  /// Sets all counters of a rank, and its work counter.
  void setCounters(int rank, std::uint64_t value) {
    const std::size_t words = counters_.countersBytes() / sizeof(std::uint64_t);
    scratch_.write(rank, std::vector<std::uint64_t>(words, value), counters_.countersOffset());
  }
  void setWorkCounter(int rank, std::uint64_t value) {
    scratch_.write(rank, std::vector<std::uint64_t>(1, value), counters_.workOffset());
  }
  std::uint64_t epoch() const { return epochs_.template read<std::uint64_t>(0).front(); }

  struct Outcome {
    std::optional<WaitRecord> record;
    bool wrong;
    bool wrongInSuccess;   ///< in a call that succeeded on that rank
    bool wroteToAbsent;    ///< to the outputs of the rank that made no call
    std::size_t failures;  ///< ranks and calls that failed
  };

  Outcome run(int blocks, int warps, const std::vector<BulkCall>& calls) {
    REQUIRE(calls.size() <= maxBulkCalls);
    REQUIRE(p.ranks <= maxBulkRanks);
    const auto ranks = static_cast<std::size_t>(p.ranks);
    std::size_t longest = 0;
    for (const BulkCall& call : calls) longest = std::max(longest, call.count);
    p.strip = roundUp(longest * ranks + 128, 128);
    p.calls = static_cast<int>(calls.size());
    std::copy(calls.begin(), calls.end(), p.call);
    const std::size_t bytes = p.strip * calls.size();
    auto inputs = backend_.allocate(p.ranks, bytes, 0);
    auto outputs = backend_.allocate(p.ranks, bytes, poisonByte);
    auto barriers = backend_.allocate(p.ranks, bulkFailureOffset + maxBulkCalls * sizeof(std::uint32_t), 0);
    std::vector<std::vector<BulkByte>> data;
    std::vector<std::vector<BulkByte>> wanted(ranks, std::vector<BulkByte>(bytes, poisonByte));
    for (int rank = 0; rank < p.ranks; ++rank) {
      data.push_back(randomBits<BulkByte>(bytes, ++seed_));
      inputs.write(rank, data.back());
    }
    for (int index = 0; index < p.calls; ++index) {
      for (int rank = 0; rank < p.ranks; ++rank) expect(data, rank, index, wanted[static_cast<std::size_t>(rank)]);
    }
    for (int rank = 0; rank < p.ranks; ++rank) {
      for (int index = 0; index < p.calls; ++index) {
        const BulkCall& call = p.call[index];
        if (!call.inPlace) continue;
        // The contribution is where the result will be.
        const std::size_t at = p.outputAt(rank, index) + static_cast<std::size_t>(rank) * call.count;
        outputs.write(rank, &wanted[static_cast<std::size_t>(rank)][at], call.count, at);
      }
    }
    p.scratch = scratch_.window();
    p.epochs = epochs_.window();
    p.inputs = inputs.window();
    p.outputs = outputs.window();
    p.barriers = barriers.window();
    p.counters = counters_;
    p.wait = backend_.wait(timeout);
    p.lateWait = BoundedWait(nullptr, waitTimeout);  // it goes on when waits of other ranks have failed
    Outcome outcome{backend_.run({p.ranks, blocks, warps, bulkSessionBytes<shape>}, BulkSessionBody<Stages, shape>{p}),
                    false, false, false, 0};
    for (int rank = 0; rank < p.ranks; ++rank) {
      const auto written = outputs.template read<BulkByte>(rank);
      const auto& right = wanted[static_cast<std::size_t>(rank)];
      const auto failures = barriers.template read<std::uint32_t>(rank);
      for (int index = 0; index < p.calls; ++index) {
        const auto strip = static_cast<std::ptrdiff_t>(p.strip * static_cast<std::size_t>(index));
        const auto end = strip + static_cast<std::ptrdiff_t>(p.strip);
        const bool isRight = std::equal(written.begin() + strip, written.begin() + end, right.begin() + strip);
        const bool failed = failures[bulkFailureOffset / sizeof(std::uint32_t) + static_cast<std::size_t>(index)] != 0;
        outcome.failures += failed;
        outcome.wrong |= !isRight;
        outcome.wrongInSuccess |= !isRight && !failed && rank != p.absentRank;
        if (rank == p.absentRank) {
          outcome.wroteToAbsent |= std::any_of(written.begin() + strip, written.begin() + end,
                                               [](BulkByte byte) { return byte != poisonByte; });
        }
      }
    }
    return outcome;
  }

  /// Makes the calls and checks everything.
  void check(int blocks, int warps, const std::vector<BulkCall>& calls) {
    const Outcome outcome = run(blocks, warps, calls);
    if (outcome.record) FAIL_CHECK(describe(*outcome.record));
    CHECK_FALSE(outcome.wrong);
    CHECK(outcome.failures == 0);
  }

 private:
  /// What a rank has in its outputs after a call.
  void expect(const std::vector<std::vector<BulkByte>>& data, int rank, int index,
              std::vector<BulkByte>& wanted) const {
    const BulkCall& call = p.call[index];
    const std::size_t at = p.strip * static_cast<std::size_t>(index) + static_cast<std::size_t>(call.inputShift);
    const auto store = [&](std::size_t part, std::size_t from, std::size_t offset) {
      std::copy_n(data[from].begin() + static_cast<std::ptrdiff_t>(at + offset), call.count,
                  wanted.begin() + static_cast<std::ptrdiff_t>(p.outputAt(rank, index) + part * call.count));
    };
    if constexpr (!Stages::hasParts) {
      store(0, static_cast<std::size_t>(call.root), 0);
    } else {
      constexpr bool isAllToAll = std::is_same_v<Stages, BulkAllToAll>;
      for (std::size_t r = 0; r < data.size(); ++r) {
        store(r, r, isAllToAll ? static_cast<std::size_t>(rank) * call.count : 0);
      }
    }
  }

  Backend<> backend_;
  BulkCounters counters_;
  using Buffers = decltype(std::declval<Backend<>>().allocate(0, 0, 0));
  Buffers scratch_, epochs_;
  unsigned seed_ = 0;
};

/// Calls of random lengths, roots and alignments; most of them have outputs that are congruent to the inputs.
inline std::vector<BulkCall> variedBulkCalls(int ranks, unsigned seed, bool canBeInPlace) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  std::vector<BulkCall> calls;
  for (int index = 0; index < maxBulkCalls; ++index) {
    BulkCall call{1 + random() % (index % 4 == 0   ? 3000
                                  : index % 4 == 1 ? 40
                                                   : 700),
                  below(static_cast<unsigned>(ranks))};
    if (index % 2 == 0) call.count = roundUp(call.count, 16);
    if (index % 3 != 0) call.inputShift = call.outputShift = below(16);
    if (index % 5 == 4) call.outputShift = below(16);
    if (index % 7 == 6) call.lastShift = below(16);
    call.inPlace = canBeInPlace && index % 4 == 3;
    calls.push_back(call);
  }
  return calls;
}

template <class Stages, BulkSessionShape shape>
void checkBulkSession() {
  constexpr bool canBeInPlace = std::is_same_v<Stages, BulkAllGather>;
  for (const int ranks : thinned({1, 2, 3, 8}, {1, 3})) {
    CAPTURE(ranks);
    const bool isLarge = ranks > 3 && !Backend<>::onGpu;  // each thread is one of the operating system
    const int blocks = isLarge ? 1 : 3;
    BulkSessionTester<Stages, shape> tester(ranks, blocks, ranks == 3 ? 384 : 128);
    tester.p.delays = 20'000;
    tester.check(blocks, isLarge ? 2 : 3, variedBulkCalls(ranks, 1, canBeInPlace));
    // Other numbers of blocks and queues on the same counters.
    tester.check(1, 1, variedBulkCalls(ranks, 2, canBeInPlace));
    tester.check(blocks, 1, variedBulkCalls(ranks, 3, canBeInPlace));
    tester.p.withoutSharedMemory = true;
    tester.check(1, 2, variedBulkCalls(ranks, 4, canBeInPlace));
    tester.p.withoutSharedMemory = false;
    tester.p.asOneThread = true;
    tester.check(1, 1, variedBulkCalls(ranks, 7, canBeInPlace));
    tester.p.asOneThread = false;
    tester.check(blocks, 2, variedBulkCalls(ranks, 5, canBeInPlace));
  }
}

TEST_CASE("bulk session: all-gathers of any length and alignment, in place and out of place") {
  checkBulkSession<BulkAllGather, twoQueues>();
  checkBulkSession<BulkAllGather, oneQueue>();
}
TEST_CASE("bulk session: all-to-alls of any length and alignment") {
  checkBulkSession<BulkAllToAll, twoQueues>();
  checkBulkSession<BulkAllToAll, oneQueue>();
}
TEST_CASE("bulk session: broadcasts from changing roots") {
  checkBulkSession<BulkBroadcast, twoQueues>();
}

TEST_CASE("bulk session: short calls back to back") {
  std::vector<BulkCall> calls;
  for (int i = 0; i < maxBulkCalls; ++i) calls.push_back({static_cast<std::size_t>(i % 5 * 16 + i % 2), i % 3});
  for (BulkCall& call : calls) call.count = std::max<std::size_t>(call.count, 1);
  BulkSessionTester<BulkAllGather> allGather(3, 2);
  BulkSessionTester<BulkBroadcast> broadcast(3, 2);
  broadcast.p.delays = 5'000;
  for (int launch = 0; launch < 10; ++launch) {
    allGather.check(2, 2, calls);
    broadcast.check(2, 2, calls);
  }
}

TEST_CASE("bulk session: numbers beyond 32 bits") {
  BulkSessionTester<BulkBroadcast> tester(3, 2, 128, (std::uint64_t{1} << 32) - 20);
  tester.check(2, 2, variedBulkCalls(3, 6, false));
  CHECK(tester.epoch() > std::uint64_t{1} << 32);
}

// After a failed wait, ranks may read what others write.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("bulk session: nothing is written to a rank that has not entered, and it is named") {
  BulkSessionTester<BulkAllGather> tester(2, 1);
  tester.timeout = 200'000'000;
  tester.p.absentRank = 1;
  const auto outcome = tester.run(1, 2, {{100}, {100}, {100}});
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->operation == WaitOperation::Progress);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
  CHECK(outcome.record->expected == 1);
  CHECK_FALSE(outcome.wroteToAbsent);
  CHECK(outcome.failures == 3);  // the calls after the failed one too
}
TEST_CASE("bulk session: this check detects a rank that writes without having been told") {
  BulkSessionTester<BulkAllGather> tester(2, 1);
  tester.timeout = 200'000'000;
  tester.p.absentRank = 1;
  tester.setCounters(0, 1);  // as if rank 1 had entered
  tester.setWorkCounter(0, 0);
  CHECK(tester.run(1, 2, {{100}}).wroteToAbsent);
}

TEST_CASE("bulk session: calls after a failed one tell no peer that its data has arrived") {
  BulkSessionTester<BulkAllGather> tester(2, 2);
  tester.timeout = 200'000'000;
  tester.p.lateRank = 1;
  tester.p.lateUntil = 3;
  const auto outcome = tester.run(2, 2, {{500}, {500}, {500}});
  CHECK(outcome.record.has_value());
  CHECK(outcome.failures > 0);
  CHECK_FALSE(outcome.wrongInSuccess);
}

TEST_CASE("bulk session: these checks detect a work counter that does not match the call") {
  BulkSessionTester<BulkAllGather> tester(2, 1);
  tester.setWorkCounter(0, 1);  // the first part is left out
  CHECK(tester.run(1, 2, {{1000}}).wrong);
}
#endif

TEST_CASE("bulk session: counters of all blocks and senders do not overlap") {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    for (int blocks = 1; blocks <= 4; ++blocks) {
      const BulkCounters counters{128, ranks, blocks};
      std::vector<std::size_t> words{counters.workOffset()};
      for (int block = 0; block < blocks; ++block) {
        for (int from = 0; from < ranks; ++from) words.push_back(counters.counterOffset(block, from));
      }
      std::sort(words.begin(), words.end());
      REQUIRE(words.front() >= counters.countersOffset());
      for (std::size_t i = 0; i + 1 < words.size(); ++i) REQUIRE(words[i + 1] - words[i] >= 8);
      REQUIRE(words.back() + 8 <= counters.countersOffset() + counters.countersBytes());
      REQUIRE(counters.countersOffset() + counters.countersBytes() <= counters.callOffset(0));
      REQUIRE(counters.callOffset(ranks) == counters.windowBytes());
    }
  }
}

}  // namespace mscclpp::test
