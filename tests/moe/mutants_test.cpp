// Mutants of dispatch and combine: each is wrong in one place, and the checks that the real ones pass must find it.
#include <utility>

#include "tester.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {

using SentinelPackets = moe::PacketTransport<Sentinel>;

/// What all delays and timeouts are multiplied by.
inline std::uint64_t delayFactor = 1;
inline std::uint64_t scaled(std::uint64_t nanoseconds) {
  return nanoseconds * delayFactor;
}

/// Packets in one set of slots: they are written again before they have been read.
struct OneSetPackets : SentinelPackets {
  static constexpr std::uint64_t sets = 1;
};
/// A row that is announced, but of which a pack is not sent.
struct LossyStores : moe::StoreTransport {
  static MSCCLPP_INLINE void write(std::byte* slots, std::uint32_t slot, const Word128& word, std::uint64_t epoch) {
    if (slot != 1 || epoch != 3) StoreTransport::write(slots, slot, word, epoch);
  }
};
/// A packet that is not sent.
struct LossyPackets : SentinelPackets {
  static MSCCLPP_INLINE void write(std::byte* slots, std::uint32_t slot, const Word128& word, std::uint64_t epoch) {
    if (slot != 1 || epoch != 3) SentinelPackets::write(slots, slot, word, epoch);
  }
};
/// Flags that do not order the row before them.
struct RelaxedStores : moe::StoreTransport {
  template <class Warp>
  static MSCCLPP_INLINE void publish(const Warp& /*warp*/, std::uint64_t* flag, std::uint64_t epoch) {
    if (flag != nullptr) arch::store<arch::Order::Relaxed, arch::Scope::System>(flag, epoch);
  }
};

/// Second pieces of rows are late.
struct LatePieces : moe::StoreTransport {
  static constexpr std::uint32_t rowSlots = 2 * moe::stepPacks;  // of a combine in piecesAreMixed()
  static MSCCLPP_INLINE void write(std::byte* slots, std::uint32_t slot, const Word128& word, std::uint64_t epoch) {
    if (slot % rowSlots == moe::stepPacks) moeDelay(scaled(25'000'000));
    StoreTransport::write(slots, slot, word, epoch);
  }
};
/// The same, with flags that announce the next piece of a row too. Of a dispatch of few short rows to all ranks that is
/// the flag of the next token's row, which is in time.
struct EagerFlags : LatePieces {
  template <class Warp>
  static MSCCLPP_INLINE void publish(const Warp& warp, std::uint64_t* flag, std::uint64_t epoch) {
    StoreTransport::publish(warp, flag, epoch);
    StoreTransport::publish(warp, flag == nullptr ? nullptr : flag + 1, epoch + 1);
  }
};

/// Flags that are set while the copies are under way, which take a while.
struct HastyCopies : moe::BulkTransport {
  template <int destinations>
  struct Queue : moe::BulkTransport::Queue<destinations> {
    using Base = moe::BulkTransport::Queue<destinations>;
    using Base::Base;
    template <class Warp, class Wait>
    void finish(const Warp& warp, Wait& wait) {
      moeDelay(scaled(5'000'000));
      Base::finish(warp, wait);
    }
  };
  template <class CopyQueue, class Warp, class Wait>
  static MSCCLPP_INLINE void complete(CopyQueue&, const Warp&, Wait&) {}
};

/// Rows that are taken once they are counted, without waiting for the flags of their data, which leaves late. Headers
/// are awaited, since the receiver computes addresses from them.
struct CountedPackets : SentinelPackets {
  static constexpr std::uint32_t rowSlots = 8, rowPacks = 3;  // of isDetected()
  static MSCCLPP_INLINE bool isData(std::uint32_t slot) { return slot % rowSlots < rowPacks; }
  static MSCCLPP_INLINE void write(std::byte* slots, std::uint32_t slot, const Word128& word, std::uint64_t epoch) {
    if (slot % rowSlots == 0) moeDelay(scaled(5'000'000));
    SentinelPackets::write(slots, slot, word, epoch);
  }
  template <int N, class Wait>
  static MSCCLPP_INLINE bool read(Wait& wait, const WaitSite& site, std::byte* const (&slots)[N],
                                  const std::uint32_t (&slot)[N], const bool (&isPresent)[N], std::uint64_t epoch,
                                  Word128 (&words)[N], bool streams) {
    bool isAwaited[N];
    for (int i = 0; i < N; ++i) isAwaited[i] = isPresent[i] && !isData(slot[i]);
    if (!SentinelPackets::read<N>(wait, site, slots, slot, isAwaited, epoch, words, streams)) return false;
    for (int i = 0; i < N; ++i) {
      if (isPresent[i] && isData(slot[i])) words[i] = arch::loadWide(slots[i] + bytes(slot[i]));
    }
    return true;
  }
};

/// A grid on whose blocks another BlockRouting counts.
template <class Base>
struct MiscountingGrid : Base {
  WrongCounts wrongCounts;
};
struct MiscountingBody : MoeBody<SentinelPackets, RowKind::Plain> {
  template <class GridType>
  void operator()(int rank, const GridType& grid) const {
    MoeBody::operator()(rank, MiscountingGrid<GridType>{grid, p.wrongCounts});
  }
};
/// A grid whose blocks do not wait for each other's threads, of which the first is late.
template <class Base>
struct UnsyncedGrid : Base {
  struct Block {
    decltype(std::declval<const Base&>().block()) all;
    int rank() const { return all.rank(); }
    int size() const { return all.size(); }
    void sync() const {
      if (rank() == 0) moeDelay(scaled(5'000'000));
    }
  };
  Block block() const { return {Base::block()}; }
};

}  // namespace mscclpp::test

namespace mscclpp::moe {

template <class Base>
class BlockRouting<test::MiscountingGrid<Base>> : public BlockRouting<Base> {
 public:
  BlockRouting(const test::MiscountingGrid<Base>& grid, const Dimensions& dimensions, std::uint32_t* words)
      : BlockRouting<Base>(grid, dimensions, words), grid_(grid), dimensions_(dimensions), words_(words) {}

  template <class Index>
  void make(const Routing<Index>& routing) const {
    if (grid_.wrongCounts == test::WrongCounts::Early) {
      const test::UnsyncedGrid<Base> unsynced{grid_};
      BlockRouting<test::UnsyncedGrid<Base>>(unsynced, dimensions_, words_).make(routing);
    } else {
      BlockRouting<Base>::make(routing);
    }
  }
  std::uint32_t countOfRank(int rank, std::uint32_t tokens) const {
    return wrong(test::WrongCounts::Token, BlockRouting<Base>::countOfRank(rank, tokens));
  }
  std::uint32_t countOfExpert(std::uint32_t expert, std::uint32_t tokens) const {
    return wrong(test::WrongCounts::Row, BlockRouting<Base>::countOfExpert(expert, tokens));
  }

 private:
  std::uint32_t wrong(test::WrongCounts which, std::uint32_t count) const {
    return which == grid_.wrongCounts && grid_.blockIndex() == 0 && count > 0 ? count - 1 : count;
  }

  const test::MiscountingGrid<Base>& grid_;
  const Dimensions& dimensions_;
  std::uint32_t* words_;
};

}  // namespace mscclpp::moe

namespace mscclpp::test {

template <class Transport, class Body = MoeBody<Transport, RowKind::Plain>>
bool isDetected(WrongCounts wrongCounts = WrongCounts::None) {
  MoeParameters p = moeParameters(2, 2, 2, 4, 4, 4);
  for (auto& call : p.tokens) call[0] = call[1] = 4;
  p.wrongCounts = wrongCounts;
  p.dispatchOnly = true;  // otherwise a combine, which every rank takes part in, keeps the dispatches apart
  p.slowRank = 1;
  p.slowness = scaled(25'000'000);
  const auto outcome = MoeTester<Transport, RowKind::Plain, Body>(p, 2).run(1, 2, scaled(1'000'000'000));
  return outcome.record || !outcome.error.empty();
}

/// Whether a mutant is detected in one of several attempts, each with longer delays.
template <class IsDetected>
bool isFoundAtLast(const IsDetected& isDetected) {
  const bool isFound = isFoundWithLongerDelays([&](std::uint64_t factor) {
    delayFactor = factor;
    return isDetected();
  });
  delayFactor = 1;
  return isFound;
}

/// One call, whose combine returns rows of two steps.
template <class Transport>
bool piecesAreMixed() {
  MoeParameters p = moeParameters(2, 2, 2, 4, 1, 4);
  p.tokens[0][0] = p.tokens[0][1] = 4;
  p.resultPacks = Transport::rowSlots;
  const auto outcome = MoeTester<Transport, RowKind::Plain>(p, 2).run(1, 2, scaled(1'000'000'000));
  return outcome.record || !outcome.error.empty();
}

TEST_CASE("moe: the checks detect mutants") {
  CHECK_FALSE(isDetected<SentinelPackets>());
  CHECK_FALSE(isDetected<moe::StoreTransport>());
  CHECK_FALSE(isDetected<moe::BulkTransport>());
  CHECK(isFoundAtLast([] { return isDetected<HastyCopies>(); }));
  CHECK(isFoundAtLast([] { return isDetected<LossyStores>(); }));
  CHECK(isFoundAtLast([] { return isDetected<LossyPackets>(); }));
  CHECK(isFoundAtLast([] { return isDetected<OneSetPackets>(); }));
  CHECK(isFoundAtLast([] { return isDetected<moe::StoreTransport>(WrongCounts::Swapped); }));
  CHECK_FALSE(piecesAreMixed<LatePieces>());
  countRaces([] { CHECK(isFoundAtLast(piecesAreMixed<EagerFlags>)); });
}

TEST_CASE("moe: the checks detect wrong counts of packets") {
  const auto isFound = [](WrongCounts wrongCounts) {
    return isDetected<SentinelPackets, MiscountingBody>(wrongCounts);
  };
  CHECK_FALSE(isFound(WrongCounts::None));
  CHECK(isFound(WrongCounts::Token));
  CHECK(isFound(WrongCounts::Row));
  countRaces([&] { CHECK(isFoundAtLast([&] { return isFound(WrongCounts::Early); })); });
  countRaces([] { CHECK(isFoundAtLast([] { return isDetected<CountedPackets>(); })); });
}

TEST_CASE("moe: ThreadSanitizer detects flags without release") {
  CHECK(countRaces([] { isDetected<moe::StoreTransport>(); }) == 0);
  const int races = countRaces([] { isDetected<RelaxedStores>(); });
  CHECK((races > 0) == detectsRaces);
}

}  // namespace mscclpp::test
