// The scratch of a bulk session: counters only.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Block b of every rank signals block b of the other ranks, through its own counters. A work counter gives out the
/// parts of the messages to the warps of a rank: only that rank uses it.
struct BulkCounters {
  static constexpr int arrays = 0;
  /// A rank says that it has entered a call, before its peers write its output.
  static constexpr SlotReuse reuse = SlotReuse::ByCredits;
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  /// A counter of 0 must not say that the peer has entered the first call. The work counter is one less than the epoch.
  static constexpr std::uint64_t firstEpoch = 1;

  std::size_t partBytes;  ///< the most bytes of each message that a warp takes at a time; a multiple of 128
  int ranks;
  int blocks;  ///< the most blocks of a launch on this scratch

  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return callOffset(ranks); }
  MSCCLPP_HOST_DEVICE std::size_t countersOffset() const { return 0; }
  /// Bytes of all counters, the work counter included.
  MSCCLPP_HOST_DEVICE std::size_t countersBytes() const { return workOffset() + 128; }
  /// Bytes of the counters of a block: one 64-bit word per rank, in cache lines of their own.
  MSCCLPP_HOST_DEVICE std::size_t counterStride() const {
    return roundUp(static_cast<std::size_t>(ranks) * sizeof(std::uint64_t), 128);
  }
  /// Offset in the window, in bytes, of the word in which rank `from` counts what `block` has done.
  MSCCLPP_HOST_DEVICE std::size_t counterOffset(int block, int from) const {
    return static_cast<std::size_t>(block) * counterStride() + static_cast<std::size_t>(from) * sizeof(std::uint64_t);
  }
  MSCCLPP_HOST_DEVICE std::size_t workOffset() const { return static_cast<std::size_t>(blocks) * counterStride(); }
  /// Offset of the CallWords of rank `from`.
  MSCCLPP_HOST_DEVICE std::size_t callOffset(int from) const {
    return countersBytes() + static_cast<std::size_t>(from) * CallWords::bytes;
  }
};

}  // namespace mscclpp
