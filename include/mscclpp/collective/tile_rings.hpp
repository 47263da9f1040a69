// The scratch of a tile pipeline: rings of slots for tiles, and step counters.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The shape of the rings of a pipeline: packs of a tile, a multiple of 8; blocks of every launch; slots of a ring, a
/// power of two. Collectives take more slots if their stages need them. docs/performance.md has measurements.
struct PipelineShape {
  std::size_t tilePacks = 512;
  int blocks = 1;
  int slots = 4;
};

/// Block b of every rank communicates only with block b of the other ranks, through its own rings and counters.
/// arrayCount: the number of rings of a block, one for each kind of data that is sent.
///
/// The counters come first in the window: a rank that only sends needs no more than slotsOffset() bytes of it.
///
/// Tiles are numbered across calls, and tile number n goes into slot n modulo `slots`. Between the last tile of a call
/// and the first of the next, gap() numbers are left out.
template <int arrayCount, SlotReuse slotReuse>
struct TileRings {
  static constexpr int arrays = arrayCount;
  static constexpr SlotReuse reuse = slotReuse;
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  /// With credits, a peer's counter of 0 must not say that it has entered the first call.
  static constexpr std::uint64_t firstEpoch = reuse == SlotReuse::ByCredits ? 1 : 0;

  std::size_t tilePacks;  ///< packs that a block sends to each peer in a step; a multiple of 8
  int ranks;
  int blocks;  ///< number of blocks of every launch on this scratch
  int slots;   ///< of each ring; a power of two

  /// The least slots for a pipeline with `stages` - 1 stages that receive (or await stores), each `lookahead` steps
  /// after the stages before.
  static MSCCLPP_HOST_DEVICE constexpr int leastSlots(int lookahead, int stages) {
    const int steps = lookahead * (stages - 1);
    const int needed = reuse == SlotReuse::ByData ? (2 * lookahead > steps ? 2 * lookahead : steps) : 4 * steps;
    int result = 2;
    while (result < needed) result *= 2;
    return result;
  }
  /// Whether the rings have enough slots for such a pipeline.
  MSCCLPP_HOST_DEVICE bool suffices(int lookahead, int stages) const {
    return (slots & (slots - 1)) == 0 && slots >= leastSlots(lookahead, stages);
  }
  /// Numbers of tiles that are left out between two calls. docs/memory_model.md says why.
  MSCCLPP_HOST_DEVICE std::size_t gap() const {
    return static_cast<std::size_t>(reuse == SlotReuse::ByData ? slots : slots / 4);
  }

  MSCCLPP_HOST_DEVICE std::size_t tileBytes() const { return tilePacks * sizeof(Word128); }
  /// Bytes of a slot: a tile of each of the other ranks.
  MSCCLPP_HOST_DEVICE std::size_t slotBytes() const { return static_cast<std::size_t>(ranks - 1) * tileBytes(); }
  MSCCLPP_HOST_DEVICE std::size_t ringBytes() const { return static_cast<std::size_t>(slots) * slotBytes(); }
  MSCCLPP_HOST_DEVICE std::size_t blockBytes() const { return arrays * ringBytes(); }
  MSCCLPP_HOST_DEVICE std::size_t slotsOffset() const { return roundUp(callOffset(ranks), 128); }
  MSCCLPP_HOST_DEVICE std::size_t countersOffset() const { return 0; }
  MSCCLPP_HOST_DEVICE std::size_t countersBytes() const { return static_cast<std::size_t>(blocks) * counterStride(); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const {
    return slotsOffset() + static_cast<std::size_t>(blocks) * blockBytes();
  }
  /// Bytes of the counters of a block: one 64-bit word per rank, in cache lines of their own.
  MSCCLPP_HOST_DEVICE std::size_t counterStride() const {
    return roundUp(static_cast<std::size_t>(ranks) * sizeof(std::uint64_t), 128);
  }

  /// Offset in the window, in bytes, of the slot for tile number `tile` of `block` in array 0; those of the next arrays
  /// are ringBytes() apart.
  MSCCLPP_HOST_DEVICE std::size_t slotOffset(int block, std::uint64_t tile) const {
    const std::uint32_t slot = static_cast<std::uint32_t>(tile) & (static_cast<std::uint32_t>(slots) - 1);
    return slotsOffset() + static_cast<std::size_t>(block) * blockBytes() + slot * slotBytes();
  }
  /// Offset in a slot of the tile that rank `from` writes at rank `to`.
  MSCCLPP_HOST_DEVICE std::size_t tileInSlot(int from, int to) const {
    return static_cast<std::size_t>(peerIndex(to, from)) * tileBytes();
  }
  MSCCLPP_HOST_DEVICE std::size_t counterOffset(int block, int from) const {
    return countersOffset() + static_cast<std::size_t>(block) * counterStride() +
           static_cast<std::size_t>(from) * sizeof(std::uint64_t);
  }
  /// Offset of the CallWords of rank `from`.
  MSCCLPP_HOST_DEVICE std::size_t callOffset(int from) const {
    return countersOffset() + countersBytes() + static_cast<std::size_t>(from) * CallWords::bytes;
  }
};

}  // namespace mscclpp
