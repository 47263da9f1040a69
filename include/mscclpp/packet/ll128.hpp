// LL128 (NCCL's protocol): lines of 128 bytes with 120 bytes of data and an 8-byte flag, each written by eight lanes.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// How a line's flag is ordered after its data.
enum class LineStore {
  /// the warp stores the whole line with one instruction, which reaches the peer's memory as one transaction: true over
  /// NVLink, verified by a litmus test, but not guaranteed by PTX
  Atomic,
  Ordered  ///< data first, then the flag with release: correct on every system, slower by a fence
};

/// Packs as LL128 lines; a model of PackProtocol. A row is one 16-byte store per lane, that is width / 8 lines, of
/// which 15/16 are data. So a row has 15 * width / 16 packs, held by the lowest lanes; two 64-bit shuffles move their
/// halves to the lanes that store them. The warp's width is a multiple of 16. The flag is the 64-bit epoch.
template <LineStore lineStore>
struct LL128 {
  struct Fetched {
    Word128 stored;
  };

  static constexpr bool needsFullWarp = true;
  static constexpr int initialByte = 0;  // epochs start at 1
  static constexpr int laneBytes = 16;
  static constexpr int lanesPerLine = 8;
  static constexpr int packsPerLinePair = 15;

  static constexpr MSCCLPP_HOST_DEVICE int packsPerRow(int width) { return width / 16 * packsPerLinePair; }
  static constexpr MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) { return ceilDivide(packs, 30) * 512; }
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) { return epoch + 1; }

  /// The words that the lanes store: lane l gets words w and w + 1 of the row's data, where word 2p + h is half h of
  /// lane p's pack. In a lane that stores a flag the upper word is unspecified.
  template <class Warp>
  static MSCCLPP_INLINE Word128 encode(const Warp& warp, const Word128& pack) {
    checkWarp<Warp>();
    const int lane = warp.rank();
    const bool oddLine = lane / lanesPerLine % 2 != 0;
    const int word = lane / lanesPerLine * packsPerLinePair + lane % lanesPerLine * 2;
    const std::uint64_t lo = shuffle(warp, pack.lo, (word + 1) / 2);
    const std::uint64_t hi = shuffle(warp, pack.hi, word / 2);
    return {oddLine ? hi : lo, oddLine ? lo : hi};
  }

  template <class Warp>
  static MSCCLPP_INLINE Word128 decode(const Warp& warp, const Word128& word) {
    const int lane = warp.rank();
    const bool oddLine = lane / lanesPerLine % 2 != 0;
    const std::uint64_t lo = oddLine ? word.hi : word.lo;
    const std::uint64_t hi = oddLine ? word.lo : word.hi;
    return {shuffle(warp, lo, laneOfWord(2 * lane)), shuffle(warp, hi, laneOfWord(2 * lane + 1))};
  }

  template <class Warp>
  static MSCCLPP_INLINE void write(const Warp& warp, std::byte* slots, std::size_t row, const Word128& word,
                                   std::uint64_t epoch) {
    checkWarp<Warp>();
    const int lane = warp.rank();
    const Word128 stored{word.lo, holdsFlag(lane) ? epoch : word.hi};
    Word128* to = slot(warp, slots, row);
    if constexpr (lineStore == LineStore::Atomic) {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(to, stored);
    } else {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(&to->lo, stored.lo);
      if (!holdsFlag(lane)) arch::store<arch::Order::Relaxed, arch::Scope::System>(&to->hi, stored.hi);
      warp.sync();  // so that the flag's release covers the other lanes' stores
      if (holdsFlag(lane)) arch::store<arch::Order::Release, arch::Scope::System>(&to->hi, stored.hi);
    }
  }

  template <class Warp>
  static MSCCLPP_INLINE Fetched fetch(const Warp& warp, std::byte* slots, std::size_t row, std::uint64_t /*epoch*/) {
    checkWarp<Warp>();
    const Word128* from = slot(warp, slots, row);
    if constexpr (lineStore == LineStore::Atomic) {
      return {arch::load<arch::Order::Relaxed, arch::Scope::System>(from)};
    } else {
      return {
          Word128{0, holdsFlag(warp.rank()) ? arch::load<arch::Order::Acquire, arch::Scope::System>(&from->hi) : 0}};
    }
  }

  /// Returns the same value in all lanes.
  template <class Warp>
  static MSCCLPP_INLINE bool arrived(const Warp& warp, std::byte* slots, std::size_t row, Fetched& fetched,
                                     std::uint64_t epoch) {
    const bool holds = holdsFlag(warp.rank());
    if (!warp.all(!holds || fetched.stored.hi == epoch)) return false;
    if constexpr (lineStore == LineStore::Ordered) {
      warp.sync();  // the vote orders nothing; this extends the flag lanes' acquire to the lanes that load the data
      const Word128* from = slot(warp, slots, row);
      fetched.stored.lo = arch::load<arch::Order::Relaxed, arch::Scope::System>(&from->lo);
      if (!holds) fetched.stored.hi = arch::load<arch::Order::Relaxed, arch::Scope::System>(&from->hi);
    }
    return true;
  }

  template <class Warp>
  static MSCCLPP_INLINE Word128 received(const Warp&, const Fetched& fetched) {
    return fetched.stored;
  }

  template <class Warp>
  static MSCCLPP_INLINE void resetSlot(const Warp&, std::byte*, std::size_t) {}

 private:
  template <class Warp>
  static constexpr MSCCLPP_HOST_DEVICE void checkWarp() {
    static_assert(Warp::width % 16 == 0, "LL128 needs warps of 16 or 32 lanes: use another protocol for this group");
    static_assert(lineStore == LineStore::Ordered || Warp::lockstepStores,
                  "only a GPU warp stores a line in one transaction: use LineStore::Ordered for this group");
  }

  static MSCCLPP_INLINE bool holdsFlag(int lane) { return lane % lanesPerLine == lanesPerLine - 1; }
  static MSCCLPP_INLINE int laneOfWord(int word) {
    return word / packsPerLinePair * lanesPerLine + word % packsPerLinePair / 2;
  }

  template <class Warp>
  static MSCCLPP_INLINE Word128* slot(const Warp& warp, std::byte* slots, std::size_t row) {
    return reinterpret_cast<Word128*>(slots) + row * Warp::width + static_cast<std::size_t>(warp.rank());
  }

  template <class Warp>
  static MSCCLPP_INLINE std::uint64_t shuffle(const Warp& warp, std::uint64_t value, int source) {
    const int from = source < Warp::width ? source : Warp::width - 1;  // lanes without a pack get an unused value
    const std::uint32_t low = warp.shuffle(static_cast<std::uint32_t>(value), from);
    const std::uint32_t high = warp.shuffle(static_cast<std::uint32_t>(value >> 32), from);
    return static_cast<std::uint64_t>(high) << 32 | low;
  }
};

}  // namespace mscclpp
