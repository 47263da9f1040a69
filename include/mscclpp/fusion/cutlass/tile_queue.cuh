// How tiles pass from the warps that store them to those that send them, in a warp-specialised kernel of CUTLASS.
#pragma once

#include <cutlass/cutlass.h>

#include <cstdint>

#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/shared_word.hpp"
#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/fusion/cutlass/tile_groups.cuh"

namespace mscclpp::detail {

/// The tiles that a block has stored and not sent yet: as many as there are, so that the warps that store them never
/// wait for a link. In shared memory, with what all warps must know alike of the call.
class TileQueue {
 public:
  /// Called by one thread, before a sync of the block. epoch: of the call; hasStopped: an earlier one has failed. The
  /// warps that send may begin when others end the call, which changes its epoch.
  CUTLASS_DEVICE void init(std::uint64_t epoch, bool hasStopped) {
    epoch_ = epoch;
    hasStopped_ = hasStopped;
    for (std::uint32_t& count : stored_) count = 0;
  }
  CUTLASS_DEVICE std::uint64_t epoch() const { return epoch_; }
  CUTLASS_DEVICE bool hasStopped() const { return hasStopped_; }
  /// Called by all lanes of the warp that has issued the bulk stores of a tile, the count-th of its group: waits until
  /// they are complete, which only the thread that issued them can do, and hands the tile over.
  template <class TiledMma>
  CUTLASS_DEVICE void give(unsigned count) {
    arch::bulkWait<0>();
    const gpu::WarpTile<> warp;
    warp.sync();
    const int group = TileGroups<TiledMma>::own();
    if (warp.rank() == 0) arch::storeSharedRelease(&stored_[group], count);
  }
  /// Called by all lanes of a warp that sends: waits for the count-th tile of a group. Without a time limit: the warps
  /// that store it are of the same block, and all their own waits for other ranks have one.
  CUTLASS_DEVICE void await(int group, unsigned count) const {
    constexpr unsigned pauseNanoseconds = 64;
    while (!has(group, count)) arch::sleepFor(pauseNanoseconds);
    gpu::WarpTile<>().sync();
  }
  /// Whether it has been handed over. Acquire, for the calling thread.
  CUTLASS_DEVICE bool has(int group, unsigned count) const { return arch::loadSharedAcquire(&stored_[group]) >= count; }

 private:
  std::uint64_t epoch_;
  std::uint32_t stored_[mostTileGroups];
  bool hasStopped_;
};

}  // namespace mscclpp::detail
