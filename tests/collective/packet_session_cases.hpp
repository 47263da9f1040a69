// Cases of collective/packet_session.hpp: collectives in which some ranks need no data from others, so that slots are
// reused by credits.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

inline constexpr std::size_t sessionArrayPacks = 45;
inline constexpr int maxSessionCalls = 24;

/// What a session test does in a call.
struct SessionCall {
  stage::PackCount packs;
  int root;
};

/// The parameters of the ranks of a session test.
struct SessionParameters {
  Window<> slots, epochs, inputs, outputs, barriers;
  int ranks;
  int calls;
  SessionCall call[maxSessionCalls];
  BoundedWait wait;
  int lateRank;          ///< starts once rank 0 has completed `lateUntil` calls; -1: none
  int lateUntil;         ///< calls
  bool isLateInCall;     ///< it waits in its first call, before it receives, and not before that call
  int absentRank;        ///< makes no call; -1: none
  std::uint64_t delays;  ///< nanoseconds: ranks wait before some of their calls, in a pattern that differs
};

/// Where a rank reports how many calls it has completed, in its `barriers`.
inline constexpr std::size_t progressOffset = 64;

MSCCLPP_INLINE std::uint64_t* progressOf(const SessionParameters& p, int rank) {
  return reinterpret_cast<std::uint64_t*>(p.barriers.at(rank, progressOffset));
}

/// Runs the calls in one launch: call(session, index) for each, between grid barriers.
template <class P, int phases, SlotReuse reuse, class GridType, class Call>
MSCCLPP_INLINE void runCalls(const SessionParameters& p, int rank, const GridType& grid, const Call& call) {
  if (rank == p.absentRank) return;
  auto wait = p.wait;
  NoTrace trace;
  const Team<> team(rank, p.ranks);
  const EpochWords epochs{reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))};
  const PacketSlots<P, phases, reuse> slots{sessionArrayPacks, p.ranks};
  auto& barrier = *reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
  const auto beLate = [&] {
    const auto needed = static_cast<std::uint64_t>(p.lateUntil);
    wait.until({WaitOperation::Unknown, rank, 0, 0, needed}, [&](std::uint64_t& seen) {
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
    PacketSession session(grid, team, p.slots, epochs, slots, wait, trace);
    if (rank == p.lateRank && p.isLateInCall && index == 0) beLate();
    call(session, index);
    barrier.sync(grid, wait);
    if (grid.blockIndex() == 0 && grid.block().rank() == 0) {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(progressOf(p, rank),
                                                             static_cast<std::uint64_t>(index) + 1);
    }
  }
}

/// Broadcasts of packs, from a root that differs from call to call.
template <class P, SlotReuse reuse>
struct BroadcastBody {
  SessionParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    runCalls<P, 1, reuse>(p, rank, grid, [&](auto& session, int index) {
      const stage::PackCount packs = p.call[index].packs;
      const int root = p.call[index].root;
      const std::size_t offset = static_cast<std::size_t>(index) * sessionArrayPacks;
      const auto* input = reinterpret_cast<const Word128*>(p.inputs.at(rank)) + offset;
      auto* output = reinterpret_cast<Word128*>(p.outputs.at(rank)) + offset;
      session.forEachRow(packs, [&](stage::PackCount row) {
        const auto at = session.position(row, packs);
        Word128 pack = at.active ? input[at.pack] : Word128{0, 0};
        if (rank == root) {
          session.broadcast(0, at, session.encode(pack));
        } else {
          pack = session.decode(session.receive(0, root, at));
        }
        if (at.active) output[at.pack] = pack;
      });
      session.finish([&](int, int from) { return from == root && from != rank ? packs : 0; });
    });
  }
};

/// Reduce-scatters of int32: slices of a message of any number of packs, so that some are empty.
template <class P>
struct ReduceScatterBody {
  SessionParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    runCalls<P, 1, SlotReuse::ByCredits>(p, rank, grid, [&](auto& session, int index) {
      const stage::PackCount packs = p.call[index].packs;
      const auto slice = static_cast<stage::PackCount>(ceilDivide(packs, static_cast<stage::PackCount>(p.ranks)));
      const auto packsOf = [&](int r) {
        return static_cast<stage::PackCount>(steppedPart(packs, slice, static_cast<std::size_t>(r)).size());
      };
      const std::size_t offset = static_cast<std::size_t>(index) * sessionArrayPacks;
      const auto* input = reinterpret_cast<const Word128*>(p.inputs.at(rank)) + offset;
      auto* output = reinterpret_cast<Word128*>(p.outputs.at(rank)) + offset;
      const auto load = [&](int r, const stage::RowPosition& at) {
        return session.encode(at.active ? input[static_cast<std::size_t>(r) * slice + at.pack] : Word128{0, 0});
      };
      session.forEachRow(slice, [&](stage::PackCount row) {
        for (int i = 0; i < p.ranks - 1; ++i) {
          const int peer = session.team().peer(i);
          const auto at = session.position(row, packsOf(peer));
          session.send(0, peer, at, load(peer, at));
        }
        const auto at = session.position(row, packsOf(rank));
        const Word128 sum = session.decode(session.template reduce<std::int32_t, Sum>(0, at, load(rank, at)));
        if (at.active) output[static_cast<std::size_t>(rank) * slice + at.pack] = sum;
      });
      session.finish([&](int, int from) { return from == rank ? 0 : packsOf(rank); });
    });
  }
};

/// The memory of a session test, which persists between launches.
template <class P, int phases, SlotReuse reuse, int Width>
class SessionTester {
 public:
  static constexpr std::size_t words = maxSessionCalls * sessionArrayPacks;
  std::uint64_t timeout = waitTimeout;
  SessionParameters p{};

  explicit SessionTester(int ranks, std::uint64_t firstEpoch = 1)
      : slots_(backend_.allocate(ranks, PacketSlots<P, phases, reuse>{sessionArrayPacks, ranks}.windowBytes(),
                                 P::initialByte)),
        epochs_(backend_.allocate(ranks, maxBlocks * sizeof(std::uint64_t), 0)) {
    p.ranks = ranks;
    p.lateRank = p.absentRank = -1;
    setEpoch(firstEpoch);
  }

  void setEpoch(std::uint64_t epoch) {
    for (int rank = 0; rank < p.ranks; ++rank) epochs_.write(rank, std::vector<std::uint64_t>(maxBlocks, epoch));
  }
  std::uint64_t epoch() const { return epochs_.template read<std::uint64_t>(0).front(); }
  std::vector<std::uint32_t> slots(int rank) const { return slots_.template read<std::uint32_t>(rank); }
  /// Forges the credits that the peers have given to `rank`.
  void forgeCredits(int rank, std::uint64_t value) {
    const PacketSlots<P, phases, reuse> layout{sessionArrayPacks, p.ranks};
    slots_.write(rank, std::vector<std::uint64_t>(static_cast<std::size_t>(p.ranks), value), layout.creditOffset(0));
  }

  struct Outcome {
    std::optional<WaitRecord> record;
    bool wrong;
  };

  /// Runs the calls in one launch. expected(inputs, rank, call) returns the packs that the call writes, from pack
  /// `first` of the output of the call on.
  template <class Body, class Expected>
  Outcome run(int blocks, int warps, const std::vector<SessionCall>& calls, const Expected& expected) {
    REQUIRE(calls.size() <= maxSessionCalls);
    p.calls = static_cast<int>(calls.size());
    std::copy(calls.begin(), calls.end(), p.call);
    p.wait = backend_.wait(timeout);
    auto inputs = backend_.allocate(p.ranks, words * sizeof(Word128), 0);
    auto outputs = backend_.allocate(p.ranks, words * sizeof(Word128), poisonByte);
    auto barriers = backend_.allocate(p.ranks, 128, 0);
    std::vector<std::vector<Word128>> data;
    for (int rank = 0; rank < p.ranks; ++rank) {
      data.push_back(randomBits<Word128>(words, ++seed_));
      inputs.write(rank, data.back());
    }
    p.slots = slots_.window();
    p.epochs = epochs_.window();
    p.inputs = inputs.window();
    p.outputs = outputs.window();
    p.barriers = barriers.window();
    Outcome outcome{backend_.run({p.ranks, blocks, warps}, Body{p}), false};
    for (int rank = 0; rank < p.ranks; ++rank) {
      std::vector<Word128> wanted(words);
      std::memset(static_cast<void*>(wanted.data()), poisonByte, words * sizeof(Word128));
      for (std::size_t index = 0; index < calls.size(); ++index) {
        expected(data, rank, calls[index], index * sessionArrayPacks, wanted);
      }
      outcome.wrong |= firstDifference(outputs.template read<Word128>(rank), wanted) != -1;
    }
    return outcome;
  }

 private:
  Backend<Width> backend_;
  using Buffers = decltype(std::declval<Backend<Width>>().allocate(0, 0, 0));
  Buffers slots_, epochs_;
  unsigned seed_ = 0;
};

using SessionInputs = std::vector<std::vector<Word128>>;

inline void expectBroadcast(const SessionInputs& inputs, int, const SessionCall& call, std::size_t offset,
                            std::vector<Word128>& wanted) {
  const auto& from = inputs[static_cast<std::size_t>(call.root)];
  for (std::size_t i = offset; i < offset + call.packs; ++i) wanted[i] = from[i];
}

/// The slice of `rank` of the sums of int32.
inline void expectReduceScatter(const SessionInputs& inputs, int rank, const SessionCall& call, std::size_t offset,
                                std::vector<Word128>& wanted) {
  const std::size_t slice = ceilDivide(std::size_t{call.packs}, inputs.size());
  const Range part = steppedPart(call.packs, slice, static_cast<std::size_t>(rank));
  for (std::size_t i = offset + part.begin; i < offset + part.end; ++i) {
    std::array<std::uint32_t, 4> sum{};
    for (const auto& input : inputs) {
      const auto values = arch::bitCast<std::array<std::uint32_t, 4>>(input[i]);
      for (std::size_t k = 0; k < 4; ++k) sum[k] += values[k];
    }
    wanted[i] = arch::bitCast<Word128>(sum);
  }
}

/// Calls f(tag) with each protocol; tag::Type is the protocol, tag::width the warp's width in emulation.
template <class Protocol, int Width>
struct SessionProtocol {
  using Type = Protocol;
  static constexpr int width = Width;
};
template <class F>
void forEachSessionProtocol(const F& f) {
  f(SessionProtocol<PacketRows<LL8Packet>, 4>{});
  f(SessionProtocol<PacketRows<LL16Packet>, 4>{});
  f(SessionProtocol<LL128<LineStore::Ordered>, 16>{});
  f(SessionProtocol<Sentinel, 4>{});
}

/// Calls of all lengths, from the empty one to a full array, with roots that change.
inline std::vector<SessionCall> variedCalls(int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<SessionCall> calls;
  for (int index = 0; index < maxSessionCalls; ++index) {
    const auto packs = random() % 3 == 0 ? sessionArrayPacks : random() % (sessionArrayPacks + 1);
    calls.push_back({static_cast<stage::PackCount>(packs), static_cast<int>(random() % static_cast<unsigned>(ranks))});
  }
  return calls;
}

template <class Tag, template <class> class BodyOf, class Expected>
void checkSession(const Expected& expected) {
  using P = typename Tag::Type;
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    SessionTester<P, 1, SlotReuse::ByCredits, Tag::width> tester(ranks);
    tester.p.delays = 20'000;
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const int blocks = static_cast<int>(seed % 2) + 1;
      const auto outcome = tester.template run<BodyOf<P>>(blocks, 1, variedCalls(ranks, seed), expected);
      if (outcome.record) FAIL_CHECK(describe(*outcome.record));
      CHECK_FALSE(outcome.wrong);
    }
  }
}

template <class P>
using CreditedBroadcast = BroadcastBody<P, SlotReuse::ByCredits>;

TEST_CASE("packet session: broadcasts from changing roots, by credits") {
  forEachSessionProtocol([](auto tag) { checkSession<decltype(tag), CreditedBroadcast>(expectBroadcast); });
}

TEST_CASE("packet session: reduce-scatters with empty slices, by credits") {
  forEachSessionProtocol([](auto tag) { checkSession<decltype(tag), ReduceScatterBody>(expectReduceScatter); });
}

using LL16Rows = PacketRows<LL16Packet>;
using LL16Tester = SessionTester<LL16Rows, 1, SlotReuse::ByCredits, 4>;

std::vector<SessionCall> fromRootZero(int calls, stage::PackCount packs) {
  return std::vector<SessionCall>(static_cast<std::size_t>(calls), SessionCall{packs, 0});
}

TEST_CASE("packet session: the root of a broadcast runs ahead of a reader by the sets of slots, and no further") {
  constexpr int sets = PacketSlots<LL16Rows, 1, SlotReuse::ByCredits>::sets;
  for (const bool isLateInCall : {false, true}) {
    CAPTURE(isLateInCall);
    LL16Tester tester(2);
    tester.p.lateRank = 1;
    tester.p.isLateInCall = isLateInCall;
    // Had the root to wait for rank 1 before, both would time out.
    tester.p.lateUntil = sets;
    const auto outcome = tester.run<CreditedBroadcast<LL16Rows>>(1, 1, fromRootZero(12, 7), expectBroadcast);
    CHECK_FALSE(outcome.record);
    CHECK_FALSE(outcome.wrong);
    tester.p.lateUntil = sets + 1;
    tester.timeout = 300'000'000;
    CHECK(tester.run<CreditedBroadcast<LL16Rows>>(1, 1, fromRootZero(12, 7), expectBroadcast).record.has_value());
  }
}

TEST_CASE("packet session: these checks detect slots that are written before they were read") {
  SUBCASE("a broadcast without credits") {
    SessionTester<LL16Rows, 1, SlotReuse::ByData, 4> tester(2);
    tester.timeout = 300'000'000;
    tester.p.lateRank = 1;
    tester.p.lateUntil = 12;
    using Wrong = BroadcastBody<LL16Rows, SlotReuse::ByData>;
    const auto outcome = tester.run<Wrong>(1, 1, fromRootZero(12, 7), expectBroadcast);
    CHECK(outcome.record.has_value());
    CHECK(outcome.wrong);
  }
  SUBCASE("credits that were not given") {
    LL16Tester tester(2);
    tester.forgeCredits(0, 1000);
    tester.timeout = 300'000'000;
    tester.p.lateRank = 1;
    tester.p.lateUntil = 12;
    const auto outcome = tester.run<CreditedBroadcast<LL16Rows>>(1, 1, fromRootZero(12, 7), expectBroadcast);
    CHECK(outcome.record.has_value());
    CHECK(outcome.wrong);
  }
}

TEST_CASE("packet session: a reader that does not arrive is named by the rank that waits for its credit") {
  LL16Tester tester(2);
  tester.timeout = 300'000'000;
  tester.p.absentRank = 1;
  const auto outcome = tester.run<CreditedBroadcast<LL16Rows>>(1, 1, fromRootZero(8, 7), expectBroadcast);
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
    LL16Tester tester(3, first);
    tester.p.delays = 20'000;
    const auto outcome = tester.run<CreditedBroadcast<LL16Rows>>(2, 1, variedCalls(3, 5), expectBroadcast);
    CHECK_FALSE(outcome.record);
    CHECK_FALSE(outcome.wrong);
    CHECK(tester.epoch() == first + maxSessionCalls + 2);
  }

  constexpr std::uint32_t first = 0x12345674;
  LL16Tester tester(3, first);
  const auto slotsWithFirstFlags = [&] {
    std::ptrdiff_t count = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const auto words = tester.slots(rank);
      // Flags are the odd words; credits are at the end.
      const std::size_t end =
          PacketSlots<LL16Rows, 1, SlotReuse::ByCredits>{sessionArrayPacks, 3}.creditOffset(0) / sizeof(std::uint32_t);
      for (std::size_t i = 1; i < end; i += 2) count += words[i] >= first && words[i] < first + 4;
    }
    return count;
  };
  CHECK_FALSE(tester.run<CreditedBroadcast<LL16Rows>>(1, 1, fromRootZero(4, sessionArrayPacks), expectBroadcast).wrong);
  CHECK(slotsWithFirstFlags() > 0);
  tester.setEpoch(std::uint64_t{1} << 30);
  CHECK_FALSE(tester.run<CreditedBroadcast<LL16Rows>>(1, 1, fromRootZero(4, 3), expectBroadcast).wrong);
  CHECK(slotsWithFirstFlags() == 0);
}

TEST_CASE("packet session: slot arrays of all senders, phases and sets, and the credits, do not overlap") {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (std::size_t packs = 1; packs <= 70; ++packs) {
      const PacketSlots<LL16Rows, 2, SlotReuse::ByCredits> slots{packs, ranks};
      std::vector<std::size_t> starts;
      for (std::uint64_t epoch = 5; epoch < 9; ++epoch) {
        for (int phase = 0; phase < 2; ++phase) {
          for (int from = 0; from < ranks; ++from) starts.push_back(slots.offset(epoch, phase, from));
        }
      }
      starts.push_back(slots.creditOffset(0));
      std::sort(starts.begin(), starts.end());
      for (std::size_t i = 0; i + 1 < starts.size(); ++i) REQUIRE(starts[i + 1] - starts[i] >= LL16Rows::bytes(packs));
      REQUIRE(starts.back() == slots.creditOffset(0));
      REQUIRE(slots.windowBytes() == slots.creditOffset(ranks));
    }
  }
}

}  // namespace mscclpp::test
