// Sentinel (TensorRT-LLM's "Lamport" protocol): packs without flags. A slot holds a sentinel value, the poison, until
// its data arrives; the receiver then stores the poison again.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A model of PackProtocol. All 16 bytes of a slot are data, so nothing else is sent. If a half of the payload equals
/// the poison, the sender also writes an escape word beside the slots (epoch, and which halves), so every bit pattern
/// is received correctly, if more slowly. Layout: blocks of 32 slots followed by their 32 escape words. A slot must be
/// re-poisoned before its next write: see docs/memory_model.md.
struct Sentinel {
  struct Fetched {
    Word128 pack;
  };

  static constexpr bool needsFullWarp = false;
  /// Every byte of the poison, so that a memset can write it. As bf16 or float it is about -1e34, a rare value.
  static constexpr int initialByte = 0xf7;
  static constexpr std::uint64_t poison = 0xf7f7f7f7f7f7f7f7u;
  /// Failed attempts between two reads of the escape words, which take as long as an attempt.
  static constexpr unsigned attemptsPerEscapeCheck = 8;

  static constexpr MSCCLPP_HOST_DEVICE int packsPerRow(int width) { return width; }
  static constexpr MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) {
    return ceilDivide(packs, blockPacks) * blockBytes;
  }
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) { return epoch + 1; }

  /// A pack is sent unchanged.
  template <class Warp>
  static MSCCLPP_INLINE Word128 encode(const Warp&, const Word128& pack) {
    return pack;
  }
  template <class Warp>
  static MSCCLPP_INLINE Word128 decode(const Warp&, const Word128& word) {
    return word;
  }

  template <class Warp>
  static MSCCLPP_INLINE void write(const Warp& warp, std::byte* slots, std::size_t row, const Word128& pack,
                                   std::uint64_t epoch) {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(slot(warp, slots, row), pack);
    if (const unsigned halves = poisonedHalves(pack); halves != 0)
      arch::store<arch::Order::Relaxed, arch::Scope::System>(escape(warp, slots, row), epoch << 2 | halves);
  }

  template <class Warp>
  static MSCCLPP_INLINE Fetched fetch(const Warp& warp, std::byte* slots, std::size_t row, std::uint64_t /*epoch*/) {
    return {arch::load<arch::Order::Relaxed, arch::Scope::System>(slot(warp, slots, row))};
  }

  template <class Warp>
  static MSCCLPP_INLINE bool arrived(const Warp&, std::byte*, std::size_t, const Fetched& fetched, std::uint64_t) {
    return poisonedHalves(fetched.pack) == 0;
  }

  /// Whether all halves that equal the poison are escaped data.
  template <class Warp>
  static MSCCLPP_INLINE bool arrivedEscaped(const Warp& warp, std::byte* slots, std::size_t row, const Fetched& fetched,
                                            std::uint64_t epoch) {
    return isEscaped(fetched.pack, escape(warp, slots, row), epoch);
  }

  template <class Warp>
  static MSCCLPP_INLINE Word128 received(const Warp&, const Fetched& fetched) {
    return fetched.pack;
  }

  /// Re-poisons the slot for its next use. Called by the thread that read it.
  template <class Warp>
  static MSCCLPP_INLINE void resetSlot(const Warp& warp, std::byte* slots, std::size_t row) {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(slot(warp, slots, row), Word128{poison, poison});
  }

 private:
  static constexpr std::size_t blockPacks = 32;
  static constexpr std::size_t slotBytes = blockPacks * sizeof(Word128);
  static constexpr std::size_t blockBytes = slotBytes + blockPacks * sizeof(std::uint64_t);

  /// The halves that equal the poison: bit 0 the lower, bit 1 the upper.
  static MSCCLPP_INLINE unsigned poisonedHalves(const Word128& pack) {
    return (pack.lo == poison ? 1u : 0u) | (pack.hi == poison ? 2u : 0u);
  }

  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE bool isEscaped(Word128 pack, const std::uint64_t* escapeWord,
                                                             std::uint64_t epoch) {
    const unsigned missing = poisonedHalves(pack);
    if (missing == 0) return true;
    const auto escaped = arch::load<arch::Order::Relaxed, arch::Scope::System>(escapeWord);
    return escaped >> 2 == epoch && (missing & ~static_cast<unsigned>(escaped & 3)) == 0;
  }

  /// The block of a pack, and below its index there. With warps of 32 these are the row and the lane, without a
  /// division.
  template <class Warp>
  static MSCCLPP_INLINE std::byte* block(const Warp& warp, std::byte* slots, std::size_t row) {
    if constexpr (Warp::width == blockPacks) {
      return slots + row * blockBytes;
    } else {
      return slots + (row * Warp::width + static_cast<std::size_t>(warp.rank())) / blockPacks * blockBytes;
    }
  }
  template <class Warp>
  static MSCCLPP_INLINE std::size_t indexInBlock(const Warp& warp, std::size_t row) {
    const auto lane = static_cast<std::size_t>(warp.rank());
    if constexpr (Warp::width == blockPacks) {
      return lane;
    } else {
      return (row * Warp::width + lane) % blockPacks;
    }
  }
  template <class Warp>
  static MSCCLPP_INLINE Word128* slot(const Warp& warp, std::byte* slots, std::size_t row) {
    return reinterpret_cast<Word128*>(block(warp, slots, row)) + indexInBlock(warp, row);
  }
  template <class Warp>
  static MSCCLPP_INLINE std::uint64_t* escape(const Warp& warp, std::byte* slots, std::size_t row) {
    return reinterpret_cast<std::uint64_t*>(block(warp, slots, row) + slotBytes) + indexInBlock(warp, row);
  }
};

}  // namespace mscclpp
