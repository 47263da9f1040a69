// Cases of collective/packet_session.hpp and tile_pipeline.hpp: the stages of eight kinds of collectives over both. In
// most of them some ranks need no data from others, so that slots are reused by credits.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/collective/tile_pipeline.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

inline constexpr std::size_t sessionArrayPacks = 45;
inline constexpr int maxSessionCalls = 24;

/// What a session test does in a call.
struct SessionCall {
  std::size_t packs;
  int root;
};

/// The parameters of the ranks of a session test.
struct SessionParameters {
  Window<> scratch, epochs, inputs, outputs, barriers;
  int ranks;
  int blocks;
  int calls;
  SessionCall call[maxSessionCalls];
  BoundedWait wait;
  BoundedWait lateWait;  ///< of the late rank, before it starts
  int lateRank;          ///< starts once rank 0 has completed `lateUntil` calls; -1: none
  int lateUntil;         ///< calls
  bool isLateInCall;     ///< it waits in its first call, before it receives, and not before that call
  int absentRank;        ///< makes no call; -1: none
  int slowRank;          ///< its sink takes `sinkDelay` nanoseconds; -1: none
  std::uint64_t sinkDelay;
  std::uint64_t delays;  ///< nanoseconds: ranks wait before some of their calls, in a pattern that differs
};

/// Packs as elements of int32.
using SessionElement = std::int32_t;
inline constexpr std::size_t elementsPerPack = packSize<SessionElement>;

/// A packet session of protocol P. width: of a warp in emulation.
template <class P, int Width, SlotReuse reuse>
struct PacketKind {
  static constexpr int width = Width;
  using Scratch = PacketSlots<P, 1, reuse>;
  static MSCCLPP_HOST_DEVICE Scratch scratch(int ranks, int /*blocks*/) { return {sessionArrayPacks, ranks}; }
  template <class GridType, class Wait>
  static MSCCLPP_INLINE auto make(const GridType& grid, const CollectiveArgs<0, Scratch>& args, Wait& wait,
                                  NoTrace& trace) {
    return PacketSession(grid, args, wait, trace);
  }
};

/// A tile pipeline.
template <int lookahead, int slots, SlotReuse reuse>
struct PipelineKind {
  static constexpr int width = 4;
  using Scratch = TileRings<1, reuse>;
  static MSCCLPP_HOST_DEVICE Scratch scratch(int ranks, int blocks) { return {8, ranks, blocks, slots}; }
  template <class GridType, class Wait>
  static MSCCLPP_INLINE auto make(const GridType& grid, const CollectiveArgs<0, Scratch>& args, Wait& wait,
                                  NoTrace& trace) {
    return makeTilePipeline<lookahead>(grid, args, wait, trace);
  }
};

/// A sink that takes some time for each pack.
struct SlowSink {
  ArraySink<SessionElement> to;
  std::uint64_t nanoseconds;

  MSCCLPP_HOST_DEVICE void operator()(std::size_t first, const Pack<SessionElement>& pack, int valid) const {
    if (nanoseconds != 0) {
      const auto start = arch::nanoseconds();
      while (arch::nanoseconds() - start < nanoseconds) arch::backoff(200);
    }
    to(first, pack, valid);
  }
};

/// Where a rank reports how many calls it has completed, in its `barriers`.
inline constexpr std::size_t progressOffset = 64;

MSCCLPP_INLINE std::uint64_t* progressOf(const SessionParameters& p, int rank) {
  return reinterpret_cast<std::uint64_t*>(p.barriers.at(rank, progressOffset));
}

/// Whether a call of a rank has failed.
inline constexpr std::size_t failureOffset = 128;
MSCCLPP_INLINE std::uint32_t* failureOf(const SessionParameters& p, int rank, int call) {
  return reinterpret_cast<std::uint32_t*>(
      p.barriers.at(rank, failureOffset + static_cast<std::size_t>(call) * sizeof(std::uint32_t)));
}

/// Runs the calls in one launch, between grid barriers. Stages::run(session, rank, ranks, call, source, sink) is what a
/// call does.
template <class Kind, class Stages>
struct SessionBody {
  SessionParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == p.absentRank) return;
    auto wait = p.wait;
    NoTrace trace;
    const CollectiveArgs<0, typename Kind::Scratch> args{
        .team = Team<>(rank, p.ranks),
        .window = p.scratch,
        .epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))},
        .scratch = Kind::scratch(p.ranks, p.blocks),
        .count = 0,
        .wait = p.wait};
    auto& barrier = *reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    const auto beLate = [&] {
      const auto needed = static_cast<std::uint64_t>(p.lateUntil);
      auto patience = p.lateWait;
      patience.until({WaitOperation::Unknown, rank, 0, 0, needed}, [&](std::uint64_t& seen) {
        seen = arch::load<arch::Order::Relaxed, arch::Scope::System>(progressOf(p, 0));
        return seen >= needed;
      });
    };
    if (rank == p.lateRank && !p.isLateInCall) beLate();
    for (int index = 0; index < p.calls; ++index) {
      if (p.delays != 0 && (index * 5 + rank) % 3 == 0) {
        const auto start = arch::nanoseconds();
        while (arch::nanoseconds() - start < p.delays) arch::backoff(200);
      }
      auto session = Kind::make(grid, args, wait, trace);
      if (rank == p.lateRank && p.isLateInCall && index == 0) beLate();
      const std::size_t offset = static_cast<std::size_t>(index) * sessionArrayPacks * elementsPerPack;
      const ArraySource<SessionElement> source(reinterpret_cast<const SessionElement*>(p.inputs.at(rank)) + offset);
      const SlowSink sink{ArraySink<SessionElement>(reinterpret_cast<SessionElement*>(p.outputs.at(rank)) + offset),
                          rank == p.slowRank ? p.sinkDelay : 0};
      bool succeeded = false;
      if constexpr (requires { Stages::storesToPeers; }) {
        succeeded = Stages::run(session, p.ranks, p.call[index], source, sink,
                                p.outputs.subWindow(offset * sizeof(SessionElement)));
      } else {
        succeeded = Stages::run(session, p.ranks, p.call[index], source, sink);
      }
      if (!succeeded) arch::store<arch::Order::Relaxed, arch::Scope::Device>(failureOf(p, rank, index), 1u);
      barrier.sync(grid, wait);
      if (grid.blockIndex() == 0 && grid.block().rank() == 0) {
        arch::store<arch::Order::Relaxed, arch::Scope::System>(progressOf(p, rank),
                                                               static_cast<std::uint64_t>(index) + 1);
      }
    }
  }
};

template <class Session>
using SessionMessage = WholeMessage<SessionElement, typename Session::Index>;
template <class Session>
using SessionSlices = EvenSlices<SessionElement, typename Session::Index>;

/// The root's packs to all ranks.
struct BroadcastStages {
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int /*ranks*/, const SessionCall& call, const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    const SessionMessage<Session> message(call.packs * elementsPerPack);
    return session.run(ownSlice(message, call.root) | from(source) | share<0>() | into(sink),
                       withPeer(message, call.root) | receive<0>() | into(sink));
  }
};

/// The sums over all ranks to the root.
struct ReduceStages {
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int /*ranks*/, const SessionCall& call, const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    const SessionMessage<Session> message(call.packs * elementsPerPack);
    return session.run(withPeer(message, call.root) | from(source) | send<0>(),
                       ownSlice(message, call.root) | from(source) | reduce<0, Sum>() | into(sink));
  }
};

/// The slices of all ranks to the root.
struct GatherStages {
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int ranks, const SessionCall& call, const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    const SessionSlices<Session> slices(call.packs * elementsPerPack, ranks);
    return session.run(withPeer(slices, call.root) | from(source) | send<0>(),
                       eachPeer(slices, call.root) | receive<0>() | into(sink));
  }
};

/// The slices of the root to all ranks.
struct ScatterStages {
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int ranks, const SessionCall& call, const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    const SessionSlices<Session> slices(call.packs * elementsPerPack, ranks);
    return session.run(eachPeer(slices, call.root) | from(source) | send<0>(),
                       withPeer(slices, call.root) | receive<0>() | into(sink));
  }
};

/// The sums of this rank's slice, some of which are empty.
struct ReduceScatterStages {
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int ranks, const SessionCall& call, const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    const SessionSlices<Session> slices(call.packs * elementsPerPack, ranks);
    return session.run(eachPeer(slices) | from(source) | send<0>(),
                       ownSlice(slices) | from(source) | reduce<0, Sum>() | into(sink));
  }
};

/// The slices of all ranks, negated on the way: a transform of the sender, and one of the receiver.
struct AllGatherStages {
  struct Complement {
    MSCCLPP_HOST_DEVICE Pack<SessionElement> operator()(std::size_t /*first*/, Pack<SessionElement> pack,
                                                        int /*valid*/) const {
      for (int i = 0; i < packSize<SessionElement>; ++i) pack[i] = ~pack[i];
      return pack;
    }
  };
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int ranks, const SessionCall& call, const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    const SessionSlices<Session> slices(call.packs * elementsPerPack, ranks);
    const Complement complement;
    return session.run(
        ownSlice(slices) | from(source) | transform(complement) | share<0>() | transform(complement) | into(sink),
        eachPeer(slices) | receive<0>() | transform(complement) | into(sink));
  }
};

/// The slices of all ranks, stored straight into the peers' outputs.
struct DirectAllGatherStages {
  static constexpr bool storesToPeers = true;
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int ranks, const SessionCall& call, const Source& source,
                                 const Sink& sink, const Window<>& outputs) {
    using namespace stage;
    const SessionSlices<Session> slices(call.packs * elementsPerPack, ranks);
    return session.run(ownSlice(slices) | from(source) | storeToPeers<SessionElement>(outputs) | into(sink),
                       eachPeer(slices) | awaitStores());
  }
};

/// The root's packs, stored straight into the peers' outputs.
struct DirectBroadcastStages {
  static constexpr bool storesToPeers = true;
  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool run(Session& session, int /*ranks*/, const SessionCall& call, const Source& source,
                                 const Sink& sink, const Window<>& outputs) {
    using namespace stage;
    const SessionMessage<Session> message(call.packs * elementsPerPack);
    return session.run(ownSlice(message, call.root) | from(source) | storeToPeers<SessionElement>(outputs) | into(sink),
                       withPeer(message, call.root) | awaitStores());
  }
};

/// The memory of a session test, which persists between launches.
template <class Kind>
class SessionTester {
 public:
  using Scratch = typename Kind::Scratch;
  static constexpr std::size_t words = maxSessionCalls * sessionArrayPacks;
  std::uint64_t timeout = waitTimeout;
  std::uint64_t patience = 0;  ///< 0: as timeout; of the late rank, before it starts
  SessionParameters p{};

  explicit SessionTester(int ranks, int blocks, std::uint64_t firstEpoch = Scratch::firstEpoch)
      : scratch_(backend_.allocate(ranks, Kind::scratch(ranks, blocks).windowBytes(), Scratch::initialByte)),
        epochs_(backend_.allocate(ranks, epochWords * sizeof(std::uint64_t), 0)) {
    p.ranks = ranks;
    p.blocks = blocks;
    p.lateRank = p.absentRank = p.slowRank = -1;
    setEpoch(firstEpoch);
  }

  void setEpoch(std::uint64_t epoch) {
    for (int rank = 0; rank < p.ranks; ++rank) {
      epochs_.write(rank, std::vector<std::uint64_t>(epochWords, epoch));
      if constexpr (requires(const Scratch& scratch) { scratch.countersOffset(); }) {
        if (epoch == Scratch::firstEpoch) continue;  // counters are zero at first
        const Scratch scratch = Kind::scratch(p.ranks, p.blocks);
        const std::size_t counters = scratch.countersBytes() / sizeof(std::uint64_t);
        scratch_.write(rank, std::vector<std::uint64_t>(counters, epoch), scratch.countersOffset());
      }
    }
  }
  std::uint64_t epoch() const { return epochs_.template read<std::uint64_t>(0).front(); }
  std::vector<std::uint32_t> slots(int rank) const { return scratch_.template read<std::uint32_t>(rank); }
  /// Forges the credits that the peers have given to `rank`.
  void forgeCredits(int rank, std::uint64_t value) {
    const Scratch layout = Kind::scratch(p.ranks, p.blocks);
    std::size_t offset = 0;
    if constexpr (requires { layout.creditOffset(0); }) {
      offset = layout.creditOffset(0);
    } else {
      offset = layout.counterOffset(0, 0);
    }
    scratch_.write(rank, std::vector<std::uint64_t>(static_cast<std::size_t>(p.ranks), value), offset);
  }

  struct Outcome {
    std::optional<WaitRecord> record;
    bool wrong;
    bool wrongInSuccess;  ///< what a call wrote that has succeeded
  };

  /// Runs the calls in one launch. expected(inputs, rank, call) returns the packs that the call writes, from pack
  /// `first` of the output of the call on.
  template <class Stages, class Expected>
  Outcome run(int warps, const std::vector<SessionCall>& calls, const Expected& expected) {
    REQUIRE(calls.size() <= maxSessionCalls);
    p.calls = static_cast<int>(calls.size());
    std::copy(calls.begin(), calls.end(), p.call);
    p.wait = backend_.wait(timeout);
    p.lateWait = backend_.wait(patience == 0 ? timeout : patience);
    auto inputs = backend_.allocate(p.ranks, words * sizeof(Word128), 0);
    auto outputs = backend_.allocate(p.ranks, words * sizeof(Word128), poisonByte);
    auto barriers = backend_.allocate(p.ranks, failureOffset + maxSessionCalls * sizeof(std::uint32_t), 0);
    std::vector<std::vector<Word128>> data;
    for (int rank = 0; rank < p.ranks; ++rank) {
      data.push_back(randomBits<Word128>(words, ++seed_));
      inputs.write(rank, data.back());
    }
    p.scratch = scratch_.window();
    p.epochs = epochs_.window();
    p.inputs = inputs.window();
    p.outputs = outputs.window();
    p.barriers = barriers.window();
    Outcome outcome{backend_.run({p.ranks, p.blocks, warps}, SessionBody<Kind, Stages>{p}), false, false};
    for (int rank = 0; rank < p.ranks; ++rank) {
      std::vector<Word128> wanted(words);
      std::memset(static_cast<void*>(wanted.data()), poisonByte, words * sizeof(Word128));
      for (std::size_t index = 0; index < calls.size(); ++index) {
        expected(data, rank, calls[index], index * sessionArrayPacks, wanted);
      }
      const auto written = outputs.template read<Word128>(rank);
      const auto failures = barriers.template read<std::uint32_t>(rank);
      for (std::size_t index = 0; index < calls.size(); ++index) {
        if (failures[failureOffset / sizeof(std::uint32_t) + index] != 0) continue;
        for (std::size_t i = index * sessionArrayPacks; i < (index + 1) * sessionArrayPacks; ++i)
          outcome.wrongInSuccess |= written[i].lo != wanted[i].lo || written[i].hi != wanted[i].hi;
      }
      outcome.wrong |= firstDifference(outputs.template read<Word128>(rank), wanted) != -1;
    }
    return outcome;
  }

 private:
  Backend<Kind::width> backend_;
  using Buffers = decltype(std::declval<Backend<Kind::width>>().allocate(0, 0, 0));
  Buffers scratch_, epochs_;
  unsigned seed_ = 0;
};

using SessionInputs = std::vector<std::vector<Word128>>;

/// The packs of the slice of `rank`.
inline Range sliceOf(const SessionCall& call, std::size_t ranks, std::size_t rank) {
  return steppedPart(call.packs, roundUp(ceilDivide(call.packs, ranks), 8), rank);
}

inline Word128 sumOf(const SessionInputs& inputs, std::size_t pack) {
  std::array<std::uint32_t, 4> sum{};
  for (const auto& input : inputs) {
    const auto values = arch::bitCast<std::array<std::uint32_t, 4>>(input[pack]);
    for (std::size_t k = 0; k < 4; ++k) sum[k] += values[k];
  }
  return arch::bitCast<Word128>(sum);
}

// What rank `rank` has in its outputs after a call, whose packs start at `offset`.

inline void expectBroadcast(const SessionInputs& inputs, int, const SessionCall& call, std::size_t offset,
                            std::vector<Word128>& wanted) {
  const auto& from = inputs[static_cast<std::size_t>(call.root)];
  for (std::size_t i = offset; i < offset + call.packs; ++i) wanted[i] = from[i];
}

inline void expectReduce(const SessionInputs& inputs, int rank, const SessionCall& call, std::size_t offset,
                         std::vector<Word128>& wanted) {
  if (rank != call.root) return;
  for (std::size_t i = offset; i < offset + call.packs; ++i) wanted[i] = sumOf(inputs, i);
}

inline void expectGather(const SessionInputs& inputs, int rank, const SessionCall& call, std::size_t offset,
                         std::vector<Word128>& wanted) {
  if (rank != call.root) return;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    if (r == static_cast<std::size_t>(rank)) continue;
    const Range part = sliceOf(call, inputs.size(), r);
    for (std::size_t i = offset + part.begin; i < offset + part.end; ++i) wanted[i] = inputs[r][i];
  }
}

inline void expectScatter(const SessionInputs& inputs, int rank, const SessionCall& call, std::size_t offset,
                          std::vector<Word128>& wanted) {
  if (rank == call.root) return;
  const Range part = sliceOf(call, inputs.size(), static_cast<std::size_t>(rank));
  const auto& from = inputs[static_cast<std::size_t>(call.root)];
  for (std::size_t i = offset + part.begin; i < offset + part.end; ++i) wanted[i] = from[i];
}

inline void expectReduceScatter(const SessionInputs& inputs, int rank, const SessionCall& call, std::size_t offset,
                                std::vector<Word128>& wanted) {
  const Range part = sliceOf(call, inputs.size(), static_cast<std::size_t>(rank));
  for (std::size_t i = offset + part.begin; i < offset + part.end; ++i) wanted[i] = sumOf(inputs, i);
}

inline void expectAllGather(const SessionInputs& inputs, int, const SessionCall& call, std::size_t offset,
                            std::vector<Word128>& wanted) {
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    const Range part = sliceOf(call, inputs.size(), r);
    for (std::size_t i = offset + part.begin; i < offset + part.end; ++i) wanted[i] = inputs[r][i];
  }
}

/// Calls f(kind) with a value of each kind of session.
template <SlotReuse reuse, class F>
void forEachKind(const F& f) {
  f(PacketKind<PacketRows<LL16Packet>, 4, reuse>{});
  f(PacketKind<LL128<LineStore::Ordered>, 16, reuse>{});
  f(PacketKind<Sentinel, 4, reuse>{});
  f(PipelineKind<1, 8, reuse>{});
  f(PipelineKind<2, 8, reuse>{});
}

/// Calls of all lengths, from the empty one to a full array, with roots that change.
inline std::vector<SessionCall> variedCalls(int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<SessionCall> calls;
  for (int index = 0; index < maxSessionCalls; ++index) {
    const auto packs = random() % 3 == 0 ? sessionArrayPacks : random() % (sessionArrayPacks + 1);
    calls.push_back({static_cast<std::size_t>(packs), static_cast<int>(random() % static_cast<unsigned>(ranks))});
  }
  return calls;
}

template <class Stages, SlotReuse reuse, class Expected>
void checkSession(const Expected& expected) {
  forEachKind<reuse>([&](auto kind) {
    for (const int ranks : {2, 3}) {
      CAPTURE(ranks);
      for (const int blocks : {1, 2}) {
        CAPTURE(blocks);
        SessionTester<decltype(kind)> tester(ranks, blocks);
        tester.p.delays = 20'000;
        for (unsigned seed = 1; seed <= 2; ++seed) {
          const int warps = kind.width == 4 ? blocks : 1;
          const auto outcome = tester.template run<Stages>(warps, variedCalls(ranks, seed), expected);
          if (outcome.record) FAIL_CHECK(describe(*outcome.record));
          CHECK_FALSE(outcome.wrong);
        }
      }
    }
  });
}

TEST_CASE("sessions: broadcasts from changing roots") {
  checkSession<BroadcastStages, SlotReuse::ByCredits>(expectBroadcast);
}
TEST_CASE("sessions: reductions to changing roots") {
  checkSession<ReduceStages, SlotReuse::ByCredits>(expectReduce);
}
TEST_CASE("sessions: gathers to changing roots") {
  checkSession<GatherStages, SlotReuse::ByCredits>(expectGather);
}
TEST_CASE("sessions: scatters from changing roots") {
  checkSession<ScatterStages, SlotReuse::ByCredits>(expectScatter);
}
TEST_CASE("sessions: reduce-scatters with empty slices") {
  checkSession<ReduceScatterStages, SlotReuse::ByCredits>(expectReduceScatter);
}
TEST_CASE("sessions: all-gathers with transforms") {
  checkSession<AllGatherStages, SlotReuse::ByCredits>(expectAllGather);
}

// After a failed wait a call continues with meaningless data.
#if !MSCCLPP_TEST_TSAN
/// Rank 0 makes three calls, the first of which times out as rank 1 is late. Calls that succeed have right results.
template <class Stages, SlotReuse reuse, class Expected>
void checkCallsAfterFailure(const Expected& expected) {
  forEachKind<reuse>([&](auto kind) {
    SessionTester<decltype(kind)> tester(2, 1);
    tester.timeout = 200'000'000;
    tester.p.lateRank = 1;
    tester.p.lateUntil = 3;
    tester.patience = waitTimeout;
    std::vector<SessionCall> calls(3, SessionCall{sessionArrayPacks, 1});
    const auto outcome = tester.template run<Stages>(1, calls, expected);
    CHECK(outcome.record.has_value());
    CHECK_FALSE(outcome.wrongInSuccess);
  });
}
TEST_CASE("sessions: calls after a failed one tell no peer that its data has arrived") {
  checkCallsAfterFailure<AllGatherStages, SlotReuse::ByData>(expectAllGather);
  checkCallsAfterFailure<ReduceScatterStages, SlotReuse::ByData>(expectReduceScatter);
  checkCallsAfterFailure<AllGatherStages, SlotReuse::ByCredits>(expectAllGather);
  checkCallsAfterFailure<ReduceScatterStages, SlotReuse::ByCredits>(expectReduceScatter);
}
#endif

using LL16Rows = PacketRows<LL16Packet>;
using LL16Kind = PacketKind<LL16Rows, 4, SlotReuse::ByCredits>;
using LL16Tester = SessionTester<LL16Kind>;

std::vector<SessionCall> fromRootZero(int calls, std::size_t packs) {
  return std::vector<SessionCall>(static_cast<std::size_t>(calls), SessionCall{packs, 0});
}

TEST_CASE("packet session: the root of a broadcast runs ahead of a reader by the sets of slots, and no further") {
  constexpr int sets = LL16Kind::Scratch::sets;
  for (const bool isLateInCall : {false, true}) {
    CAPTURE(isLateInCall);
    LL16Tester tester(2, 1);
    tester.p.lateRank = 1;
    tester.p.isLateInCall = isLateInCall;
    // Had the root to wait for rank 1 before, both would time out.
    tester.p.lateUntil = sets;
    const auto outcome = tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast);
    CHECK_FALSE(outcome.record);
    CHECK_FALSE(outcome.wrong);
    tester.p.lateUntil = sets + 1;
    tester.timeout = 300'000'000;
    CHECK(tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast).record.has_value());
  }
}

TEST_CASE("packet session: these checks detect slots that are written before they were read") {
  SUBCASE("a broadcast without credits") {
    SessionTester<PacketKind<LL16Rows, 4, SlotReuse::ByData>> tester(2, 1);
    tester.timeout = 300'000'000;
    tester.p.lateRank = 1;
    tester.p.lateUntil = 12;
    const auto outcome = tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast);
    CHECK(outcome.record.has_value());
    CHECK(outcome.wrong);
  }
  SUBCASE("credits that were not given") {
    LL16Tester tester(2, 1);
    tester.forgeCredits(0, 1000);
    tester.timeout = 300'000'000;
    tester.p.lateRank = 1;
    tester.p.lateUntil = 12;
    const auto outcome = tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast);
    CHECK(outcome.record.has_value());
    CHECK(outcome.wrong);
  }
}

TEST_CASE("packet session: a reader that does not arrive is named by the rank that waits for its credit") {
  LL16Tester tester(2, 1);
  tester.timeout = 300'000'000;
  tester.p.absentRank = 1;
  const auto outcome = tester.run<BroadcastStages>(1, fromRootZero(8, 7), expectBroadcast);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->operation == WaitOperation::Progress);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
  // What it sent in its first call, which nobody has read, is still there.
  const auto words = tester.slots(1);
  CHECK(std::count(words.begin(), words.end(), 1u) == 7 * 2 * 2);
}

TEST_CASE("packet session: the 32-bit flag wraps, and no slot keeps a flag until it repeats") {
  constexpr std::uint64_t wrap = std::uint64_t{1} << 32;
  for (const std::uint64_t first : {wrap - 9, wrap - 6, wrap - 5, wrap - 3}) {
    CAPTURE(first);
    LL16Tester tester(3, 2, first);
    tester.p.delays = 20'000;
    const auto outcome = tester.run<BroadcastStages>(1, variedCalls(3, 5), expectBroadcast);
    CHECK_FALSE(outcome.record);
    CHECK_FALSE(outcome.wrong);
    CHECK(tester.epoch() == first + maxSessionCalls + 2);
  }

  constexpr std::uint32_t first = 0x12345674;
  LL16Tester tester(3, 1, first);
  const auto slotsWithFirstFlags = [&] {
    std::ptrdiff_t count = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto words = tester.slots(rank);
      // Flags are the odd words behind the credits.
      const std::size_t start = LL16Kind::scratch(3, 1).slotsOffset() / sizeof(std::uint32_t);
      for (std::size_t i = start + 1; i < words.size(); i += 2) count += words[i] >= first && words[i] < first + 4;
    }
    return count;
  };
  CHECK_FALSE(tester.run<BroadcastStages>(1, fromRootZero(4, sessionArrayPacks), expectBroadcast).wrong);
  CHECK(slotsWithFirstFlags() > 0);
  tester.setEpoch(std::uint64_t{1} << 30);
  CHECK_FALSE(tester.run<BroadcastStages>(1, fromRootZero(4, 3), expectBroadcast).wrong);
  CHECK(slotsWithFirstFlags() == 0);
}

TEST_CASE("packet session: slot arrays of all senders, arrays and sets, and the credits, do not overlap") {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (std::size_t packs = 1; packs <= 70; ++packs) {
      const PacketSlots<LL16Rows, 2, SlotReuse::ByCredits> slots{packs, ranks};
      for (int to = 0; to < ranks; ++to) {
        std::vector<std::size_t> starts;
        for (std::uint64_t epoch = 5; epoch < 9; ++epoch) {
          for (int array = 0; array < 2; ++array) {
            for (int from = 0; from < ranks; ++from) {
              if (from != to) starts.push_back(slots.offset(epoch, array, from, to));
            }
          }
        }
        std::sort(starts.begin(), starts.end());
        REQUIRE(starts.front() == slots.slotsOffset());
        starts.push_back(slots.windowBytes());
        // Without gaps: no slots for what a rank would send to itself.
        for (std::size_t i = 0; i + 1 < starts.size(); ++i)
          REQUIRE(starts[i + 1] - starts[i] == LL16Rows::bytes(packs));
      }
      REQUIRE(slots.callOffset(0) >= slots.creditOffset(ranks));
      REQUIRE(slots.slotsOffset() >= slots.callOffset(ranks));
    }
  }
}

// ---- tile pipelines ----

template <int slots, SlotReuse reuse = SlotReuse::ByCredits>
using PipelineTester = SessionTester<PipelineKind<2, slots, reuse>>;

/// A pipeline whose stages store straight into outputs: rings without arrays.
template <int lookahead>
struct DirectKind {
  static constexpr int width = 4;
  using Scratch = TileRings<0, SlotReuse::ByCredits>;
  static MSCCLPP_HOST_DEVICE Scratch scratch(int ranks, int blocks) { return {8, ranks, blocks, 8}; }
  template <class GridType, class Wait>
  static MSCCLPP_INLINE auto make(const GridType& grid, const CollectiveArgs<0, Scratch>& args, Wait& wait,
                                  NoTrace& trace) {
    return makeTilePipeline<lookahead>(grid, args, wait, trace);
  }
};

template <class Stages, int lookahead, class Expected>
void checkDirect(const Expected& expected) {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    SessionTester<DirectKind<lookahead>> tester(ranks, 2);
    tester.p.delays = 20'000;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      const auto outcome = tester.template run<Stages>(2, variedCalls(ranks, seed), expected);
      if (outcome.record) FAIL_CHECK(describe(*outcome.record));
      CHECK_FALSE(outcome.wrong);
    }
  }
}

TEST_CASE("tile pipeline: stores straight into the peers' outputs") {
  checkDirect<DirectAllGatherStages, 1>(expectAllGather);
  checkDirect<DirectAllGatherStages, 2>(expectAllGather);
  checkDirect<DirectBroadcastStages, 1>(expectBroadcast);
  checkDirect<DirectBroadcastStages, 2>(expectBroadcast);
}

TEST_CASE("tile pipeline: an output is written once its rank has entered the call") {
  SessionTester<DirectKind<2>> tester(2, 1);
  tester.timeout = 300'000'000;
  tester.p.absentRank = 1;
  const auto outcome = tester.run<DirectAllGatherStages>(1, fromRootZero(1, sessionArrayPacks), expectAllGather);
  REQUIRE(outcome.record);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
  CHECK(outcome.record->expected == 1);
}

TEST_CASE("tile pipeline: after a failed wait nothing is moved, in this call or a later one") {
  const auto nothing = [](const SessionInputs&, int, const SessionCall&, std::size_t, std::vector<Word128>&) {};
  const auto check = [&]<int lookahead>(int warps) {
    CAPTURE(lookahead);
    CAPTURE(warps);
    SessionTester<DirectKind<lookahead>> tester(2, 1);
    tester.timeout = 100'000'000;
    tester.p.absentRank = 1;
    for (const int calls : {2, 1}) {  // in two launches
      const auto outcome =
          tester.template run<DirectAllGatherStages>(warps, fromRootZero(calls, sessionArrayPacks), nothing);
      CHECK(outcome.record.has_value() == (calls == 2));
      CHECK_FALSE(outcome.wrong);
    }
  };
  for (const int warps : {1, 3}) {
    check.template operator()<1>(warps);
    check.template operator()<2>(warps);
  }
}

TEST_CASE("tile pipeline: the root of a broadcast runs ahead of a reader by three calls and more") {
  PipelineTester<32> tester(2, 1);
  tester.p.lateRank = 1;
  tester.p.lateUntil = 4;  // had the root to wait for rank 1 before, both would time out
  const auto outcome = tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast);
  CHECK_FALSE(outcome.record);
  CHECK_FALSE(outcome.wrong);
  tester.p.lateUntil = 8;
  tester.timeout = 300'000'000;
  CHECK(tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast).record.has_value());
}

TEST_CASE("tile pipeline: numbers of tiles that wrap around 32 bits") {
  PipelineTester<8> tester(3, 2, (std::uint64_t{1} << 32) - 40);
  tester.p.delays = 20'000;
  const auto outcome = tester.run<BroadcastStages>(1, variedCalls(3, 5), expectBroadcast);
  CHECK_FALSE(outcome.record);
  CHECK_FALSE(outcome.wrong);
}

/// The wrong ring: too few numbers are left out between calls.
struct ShortGapRings : TileRings<1, SlotReuse::ByData> {
  MSCCLPP_HOST_DEVICE std::size_t gap() const { return 2; }
};
template <class Rings>
struct RingsKind {
  static constexpr int width = 4;
  using Scratch = Rings;
  static MSCCLPP_HOST_DEVICE Scratch scratch(int ranks, int blocks) { return {{8, ranks, blocks, 4}}; }
  template <class GridType, class Wait>
  static MSCCLPP_INLINE auto make(const GridType& grid, const CollectiveArgs<0, Scratch>& args, Wait& wait,
                                  NoTrace& trace) {
    return makeTilePipeline<2>(grid, args, wait, trace);
  }
};
struct RightRings : TileRings<1, SlotReuse::ByData> {};

// These have an intended data race.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("tile pipeline: these checks detect calls back to back that overwrite tiles which were not read") {
  const auto isWrong = [](auto kind, std::uint64_t factor) {
    SessionTester<decltype(kind)> tester(2, 1);
    tester.p.slowRank = 1;
    tester.p.sinkDelay = factor * 1'000'000;
    return tester.template run<AllGatherStages>(1, fromRootZero(12, sessionArrayPacks), expectAllGather).wrong;
  };
  CHECK(isFoundWithLongerDelays([&](std::uint64_t factor) { return isWrong(RingsKind<ShortGapRings>{}, factor); }));
  CHECK_FALSE(isWrong(RingsKind<RightRings>{}, 1));
}
TEST_CASE("tile pipeline: these checks detect credits that were not given") {
  PipelineTester<8> tester(2, 1);
  tester.forgeCredits(0, 1000);
  tester.p.lateRank = 1;
  tester.p.lateUntil = 12;
  CHECK(tester.run<BroadcastStages>(1, fromRootZero(12, 7), expectBroadcast).wrong);
}
#endif

TEST_CASE("tile pipeline: a reader that does not arrive is named by the rank that waits for its credit") {
  PipelineTester<8> tester(2, 1);
  tester.timeout = 300'000'000;
  tester.p.absentRank = 1;
  const auto outcome = tester.run<BroadcastStages>(1, fromRootZero(8, 7), expectBroadcast);
  REQUIRE(outcome.record);
  CHECK(outcome.record->outcome == WaitOutcome::Deadline);
  CHECK(outcome.record->operation == WaitOperation::Progress);
  CHECK(outcome.record->rank == 0);
  CHECK(outcome.record->peer == 1);
}

TEST_CASE("tile pipeline: tiles and counters of all blocks, arrays, slots and senders do not overlap") {
  for (const std::size_t packs : {8, 16, 40}) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      for (int blocks = 1; blocks <= 5; ++blocks) {
        for (int slots = 2; slots <= 8; slots *= 2) {
          const TileRings<2, SlotReuse::ByData> rings{packs, ranks, blocks, slots};
          std::vector<Range> parts;
          const int to = (blocks + slots) % ranks;
          for (int block = 0; block < blocks; ++block) {
            for (int from = 0; from < ranks; ++from) {
              for (int array = 0; array < 2 && from != to; ++array) {
                const std::size_t inSlot =
                    static_cast<std::size_t>(array) * rings.ringBytes() + rings.tileInSlot(from, to);
                for (int slot = 0; slot < slots; ++slot) {
                  const auto tile = static_cast<std::uint64_t>(slot);
                  const std::size_t at = rings.slotOffset(block, tile) + inSlot;
                  REQUIRE(at % 128 == 0);
                  REQUIRE(at == rings.slotOffset(block, tile + static_cast<std::uint64_t>(slots)) + inSlot);
                  REQUIRE(at >= rings.slotsOffset());
                  parts.push_back({at, at + packs * 16});
                }
              }
              const std::size_t at = rings.counterOffset(block, from);
              REQUIRE(at >= rings.countersOffset());
              REQUIRE(at % 8 == 0);
              parts.push_back({at, at + 8});
            }
          }
          std::sort(parts.begin(), parts.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
          for (std::size_t i = 0; i + 1 < parts.size(); ++i) REQUIRE(parts[i].end <= parts[i + 1].begin);
          REQUIRE(parts.back().end == rings.windowBytes());
          REQUIRE(rings.callOffset(0) >= rings.countersOffset() + rings.countersBytes());
          REQUIRE(rings.slotsOffset() >= rings.callOffset(ranks));
          const auto tiles = static_cast<std::size_t>(2 * slots * blocks * (ranks - 1));
          REQUIRE(rings.windowBytes() - rings.slotsOffset() == tiles * rings.tileBytes());
        }
      }
    }
  }
}

}  // namespace mscclpp::test
