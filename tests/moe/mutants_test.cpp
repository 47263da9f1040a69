// Mutants of dispatch and combine: each is wrong in one place, and the checks that the real ones pass must find it.
#include "tester.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {

using SentinelPackets = moe::PacketTransport<Sentinel>;

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
  static MSCCLPP_INLINE void publish(const Warp& warp, std::uint64_t* flag, std::uint64_t epoch) {
    if (warp.rank() == 0) arch::store<arch::Order::Relaxed, arch::Scope::System>(flag, epoch);
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
      moeDelay(5'000'000);
      Base::finish(warp, wait);
    }
  };
  template <class CopyQueue, class Warp, class Wait>
  static MSCCLPP_INLINE void complete(CopyQueue&, const Warp&, Wait&) {}
};

template <class Transport>
bool isDetected(bool wrongCounts = false) {
  MoeParameters p = moeParameters(2, 2, 2, 4, 4, 4);
  for (auto& call : p.tokens) call[0] = call[1] = 4;
  p.wrongCounts = wrongCounts;
  p.dispatchOnly = true;  // otherwise a combine, which every rank takes part in, keeps the dispatches apart
  p.slowRank = 1;
  p.slowness = 25'000'000;  // long enough for the other rank to get a turn on a busy machine
  const auto outcome = MoeTester<Transport, RowKind::Plain>(p, 2).run(1, 2, 1'000'000'000);
  return outcome.record || !outcome.error.empty();
}

TEST_CASE("moe: the checks detect mutants") {
  CHECK_FALSE(isDetected<SentinelPackets>());
  CHECK_FALSE(isDetected<moe::StoreTransport>());
  CHECK_FALSE(isDetected<moe::BulkTransport>());
  CHECK(isDetected<HastyCopies>());
  CHECK(isDetected<LossyStores>());
  CHECK(isDetected<LossyPackets>());
  CHECK(isDetected<OneSetPackets>());
  CHECK(isDetected<moe::StoreTransport>(true));
}

TEST_CASE("moe: ThreadSanitizer detects flags without release") {
  CHECK(countRaces([] { isDetected<moe::StoreTransport>(); }) == 0);
  const int races = countRaces([] { isDetected<RelaxedStores>(); });
  CHECK((races > 0) == detectsRaces);
}

}  // namespace mscclpp::test
