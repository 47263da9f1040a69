// LL128: lines of 128 bytes that carry 120 bytes of data and one 8-byte flag, written by eight lanes at once. (The protocol is NCCL's.)
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// How the flag of a line is kept from overtaking the line's data.
enum class LineStore {
  Whole,  ///< the warp's one store of the line reaches the peer's memory whole: true on NVLink between GPUs, pinned by a litmus test, not promised by PTX
  Ordered  ///< data first, then the flag with release: correct everywhere, a fence slower
};

/// Packs as LL128 lines. A row is one 16-byte store a lane, width / 8 lines, and 15/16 of its bytes are data; so a row has 15 * width / 16 packs, held by
/// the lowest lanes, and two 64-bit shuffles move their halves to the lanes that store them. width: a multiple of 16. The flag is the whole 64-bit epoch.
template <LineStore lineStore>
struct LL128 {
  struct Fetched {
    Word16 stored;
  };

  static constexpr bool wholeRows = true;
  static constexpr int initialByte = 0;  // epochs start at 1
  static constexpr int laneBytes = 16;
  static constexpr int lanesPerLine = 8;
  static constexpr int packsPerLinePair = 15;

  static constexpr MSCCLPP_HOST_DEVICE int packsPerRow(int width) { return width / 16 * packsPerLinePair; }
  static constexpr MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) { return ceilDivide(packs, 30) * 512; }
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) { return epoch + 1; }

  /// A row's packs as the lanes store them: lane l gets words w and w + 1 of the row's data, where word 2p + h is half h of lane p's pack. The upper word
  /// of a lane that holds a flag is anything.
  template <class Warp>
  static MSCCLPP_INLINE Word16 encode(const Warp& warp, const Word16& pack) {
    checkWarp<Warp>();
    const int lane = warp.rank();
    const bool oddLine = lane / lanesPerLine % 2 != 0;
    const int word = lane / lanesPerLine * packsPerLinePair + lane % lanesPerLine * 2;
    const std::uint64_t lo = shuffle(warp, pack.lo, (word + 1) / 2);
    const std::uint64_t hi = shuffle(warp, pack.hi, word / 2);
    return {oddLine ? hi : lo, oddLine ? lo : hi};
  }

  template <class Warp>
  static MSCCLPP_INLINE Word16 decode(const Warp& warp, const Word16& word) {
    const int lane = warp.rank();
    const bool oddLine = lane / lanesPerLine % 2 != 0;
    const std::uint64_t lo = oddLine ? word.hi : word.lo;
    const std::uint64_t hi = oddLine ? word.lo : word.hi;
    return {shuffle(warp, lo, laneOfWord(2 * lane)), shuffle(warp, hi, laneOfWord(2 * lane + 1))};
  }

  template <class Warp>
  static MSCCLPP_INLINE void write(const Warp& warp, std::byte* slots, std::size_t row, const Word16& word,
                                   std::uint64_t epoch) {
    checkWarp<Warp>();
    const int lane = warp.rank();
    const Word16 stored{word.lo, holdsFlag(lane) ? epoch : word.hi};
    Word16* to = slot(warp, slots, row);
    if constexpr (lineStore == LineStore::Whole) {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(to, stored);
    } else {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(&to->lo, stored.lo);
      if (!holdsFlag(lane)) arch::store<arch::Order::Relaxed, arch::Scope::System>(&to->hi, stored.hi);
      warp.sync();  // makes the other lanes' stores part of what the flag releases
      if (holdsFlag(lane)) arch::store<arch::Order::Release, arch::Scope::System>(&to->hi, stored.hi);
    }
  }

  template <class Warp>
  static MSCCLPP_INLINE Fetched fetch(const Warp& warp, std::byte* slots, std::size_t row, std::uint64_t /*epoch*/) {
    checkWarp<Warp>();
    const Word16* from = slot(warp, slots, row);
    if constexpr (lineStore == LineStore::Whole) {
      return {arch::load<arch::Order::Relaxed, arch::Scope::System>(from)};
    } else {
      return {Word16{0, holdsFlag(warp.rank()) ? arch::load<arch::Order::Acquire, arch::Scope::System>(&from->hi) : 0}};
    }
  }

  /// Uniform over the warp: true for all lanes or for none.
  template <class Warp>
  static MSCCLPP_INLINE bool arrived(const Warp& warp, std::byte* slots, std::size_t row, Fetched& fetched,
                                     std::uint64_t epoch) {
    const bool holds = holdsFlag(warp.rank());
    if (!warp.all(!holds || fetched.stored.hi == epoch)) return false;
    if constexpr (lineStore == LineStore::Ordered) {
      warp.sync();  // the vote orders nothing: this makes the flag lanes' acquire hold for the lanes that load the data
      const Word16* from = slot(warp, slots, row);
      fetched.stored.lo = arch::load<arch::Order::Relaxed, arch::Scope::System>(&from->lo);
      if (!holds) fetched.stored.hi = arch::load<arch::Order::Relaxed, arch::Scope::System>(&from->hi);
    }
    return true;
  }

  template <class Warp>
  static MSCCLPP_INLINE Word16 received(const Warp&, const Fetched& fetched) {
    return fetched.stored;
  }

  template <class Warp>
  static MSCCLPP_INLINE void consumed(const Warp&, std::byte*, std::size_t) {}

 private:
  template <class Warp>
  static constexpr MSCCLPP_HOST_DEVICE void checkWarp() {
    static_assert(Warp::width % 16 == 0, "LL128 needs warps of 16 or 32 lanes: choose another protocol for this group");
    static_assert(lineStore == LineStore::Ordered || Warp::lockstepStores,
                  "only a GPU warp stores a line whole: use LineStore::Ordered for this group");
  }

  static MSCCLPP_INLINE bool holdsFlag(int lane) { return lane % lanesPerLine == lanesPerLine - 1; }
  static MSCCLPP_INLINE int laneOfWord(int word) {
    return word / packsPerLinePair * lanesPerLine + word % packsPerLinePair / 2;
  }

  template <class Warp>
  static MSCCLPP_INLINE Word16* slot(const Warp& warp, std::byte* slots, std::size_t row) {
    return reinterpret_cast<Word16*>(slots) + row * Warp::width + static_cast<std::size_t>(warp.rank());
  }

  template <class Warp>
  static MSCCLPP_INLINE std::uint64_t shuffle(const Warp& warp, std::uint64_t value, int source) {
    const int from = source < Warp::width ? source : Warp::width - 1;  // lanes that hold no pack read anything
    const std::uint32_t low = warp.shuffle(static_cast<std::uint32_t>(value), from);
    const std::uint32_t high = warp.shuffle(static_cast<std::uint32_t>(value >> 32), from);
    return static_cast<std::uint64_t>(high) << 32 | low;
  }
};

}  // namespace mscclpp
