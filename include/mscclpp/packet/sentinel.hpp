// Sentinel: packs without flags. A slot holds poison until its data arrives, and the receiver poisons it again. (Known as "Lamport" in TensorRT-LLM.)
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// All 16 bytes of a slot are data, so the link carries no overhead. A half of the payload that happens to equal the poison is announced in an escape
/// word beside the slots: (epoch, which halves), so any bit pattern arrives right; such data costs a slower read, never a wrong one.
/// Layout: blocks of 32 slots followed by their 32 escape words. A slot must be re-poisoned (consumed) before its next writer can run: see docs/memory_model.md.
struct Sentinel {
  struct Fetched {
    Word16 pack;
  };

  static constexpr bool wholeRows = false;
  /// The poison is this byte throughout: about -1e34 as bf16 or float, rare in any data, and a memset makes it.
  static constexpr int initialByte = 0xf7;
  static constexpr std::uint64_t poison = 0xf7f7f7f7f7f7f7f7u;
  /// How many failed attempts go by before the escape words are looked at: the look would double the time of each attempt.
  static constexpr unsigned attemptsPerSecondLook = 8;

  static constexpr MSCCLPP_HOST_DEVICE int packsPerRow(int width) { return width; }
  static constexpr MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) {
    return ceilDivide(packs, blockPacks) * blockBytes;
  }
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) { return epoch + 1; }

  /// A pack travels as it is.
  template <class Warp>
  static MSCCLPP_INLINE Word16 encode(const Warp&, const Word16& pack) {
    return pack;
  }
  template <class Warp>
  static MSCCLPP_INLINE Word16 decode(const Warp&, const Word16& word) {
    return word;
  }

  template <class Warp>
  static MSCCLPP_INLINE void write(const Warp& warp, std::byte* slots, std::size_t row, const Word16& pack,
                                   std::uint64_t epoch) {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(slot(warp, slots, row), pack);
    if (const unsigned halves = poisoned(pack); halves != 0)
      arch::store<arch::Order::Relaxed, arch::Scope::System>(escape(warp, slots, row), epoch << 2 | halves);
  }

  template <class Warp>
  static MSCCLPP_INLINE Fetched fetch(const Warp& warp, std::byte* slots, std::size_t row, std::uint64_t /*epoch*/) {
    return {arch::load<arch::Order::Relaxed, arch::Scope::System>(slot(warp, slots, row))};
  }

  template <class Warp>
  static MSCCLPP_INLINE bool arrived(const Warp&, std::byte*, std::size_t, const Fetched& fetched, std::uint64_t) {
    return poisoned(fetched.pack) == 0;
  }

  /// Whether what looks like poison is announced as data.
  template <class Warp>
  static MSCCLPP_INLINE bool arrivedDisguised(const Warp& warp, std::byte* slots, std::size_t row,
                                              const Fetched& fetched, std::uint64_t epoch) {
    return isDisguised(fetched.pack, escape(warp, slots, row), epoch);
  }

  template <class Warp>
  static MSCCLPP_INLINE Word16 received(const Warp&, const Fetched& fetched) {
    return fetched.pack;
  }

  /// Makes the slot ready for its next use. Called by the thread that read it.
  template <class Warp>
  static MSCCLPP_INLINE void consumed(const Warp& warp, std::byte* slots, std::size_t row) {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(slot(warp, slots, row), Word16{poison, poison});
  }

 private:
  static constexpr std::size_t blockPacks = 32;
  static constexpr std::size_t slotBytes = blockPacks * sizeof(Word16);
  static constexpr std::size_t blockBytes = slotBytes + blockPacks * sizeof(std::uint64_t);

  /// Which halves are the poison: bit 0 the lower, bit 1 the upper.
  static MSCCLPP_INLINE unsigned poisoned(const Word16& pack) {
    return (pack.lo == poison ? 1u : 0u) | (pack.hi == poison ? 2u : 0u);
  }

  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE bool isDisguised(Word16 pack, const std::uint64_t* escapeWord,
                                                               std::uint64_t epoch) {
    const unsigned missing = poisoned(pack);
    if (missing == 0) return true;
    const auto announced = arch::load<arch::Order::Relaxed, arch::Scope::System>(escapeWord);
    return announced >> 2 == epoch && (missing & ~static_cast<unsigned>(announced & 3)) == 0;
  }

  /// A pack's block and its place there; for whole warps the row and the lane, which spares every address a division.
  template <class Warp>
  static MSCCLPP_INLINE std::byte* block(const Warp& warp, std::byte* slots, std::size_t row) {
    if constexpr (Warp::width == blockPacks) {
      return slots + row * blockBytes;
    } else {
      return slots + (row * Warp::width + static_cast<std::size_t>(warp.rank())) / blockPacks * blockBytes;
    }
  }
  template <class Warp>
  static MSCCLPP_INLINE std::size_t place(const Warp& warp, std::size_t row) {
    const auto lane = static_cast<std::size_t>(warp.rank());
    if constexpr (Warp::width == blockPacks) {
      return lane;
    } else {
      return (row * Warp::width + lane) % blockPacks;
    }
  }
  template <class Warp>
  static MSCCLPP_INLINE Word16* slot(const Warp& warp, std::byte* slots, std::size_t row) {
    return reinterpret_cast<Word16*>(block(warp, slots, row)) + place(warp, row);
  }
  template <class Warp>
  static MSCCLPP_INLINE std::uint64_t* escape(const Warp& warp, std::byte* slots, std::size_t row) {
    return reinterpret_cast<std::uint64_t*>(block(warp, slots, row) + slotBytes) + place(warp, row);
  }
};

}  // namespace mscclpp
