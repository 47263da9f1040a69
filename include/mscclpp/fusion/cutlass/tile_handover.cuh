// How a tile passes from the warps that store it to the warp that makes it known to other ranks.
#pragma once

#include <cutlass/cutlass.h>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/tile_groups.cuh"

namespace mscclpp::detail {

/// A thread's part in it, in a warp-specialised kernel of CUTLASS. The receiving warp is the one that loads C in other
/// epilogues: a release takes as long as the link, and no other warp waits for it.
class TileHandover {
 public:
  /// By the receiving warp, for each tile in turn, also for those that it does not take: the group that stores it.
  template <class TiledMma>
  CUTLASS_DEVICE int nextGroup() {
    return TileGroups<TiledMma>::ofTile(tiles_++);
  }

  /// By the warps that store tiles: `hasStored` of the first warp of a group, which issues the stores.
  template <class TiledMma>
  CUTLASS_DEVICE void note(bool hasStored) {
    group_ = TileGroups<TiledMma>::own();
    hasStored_ = hasStored;
  }
  /// By the warps that store tiles, before the next tile or at the end: the first warp waits until the stores of the
  /// last noted tile are complete, and tells the receiving warp. Only the thread that issued them can wait for them.
  /// The receiving warp is done with the tile before then.
  CUTLASS_DEVICE void give() {
    if (!hasStored_) return;
    hasStored_ = false;
    arch::bulkWait<0>();
    arch::namedBarrierSync(isReady(group_), threads);
    arch::namedBarrierArrive(isStored(group_), threads);
  }
  /// By the receiving warp: waits for the next tile of a group.
  static CUTLASS_DEVICE void take(int group) {
    arch::namedBarrierArrive(isReady(group), threads);
    arch::namedBarrierSync(isStored(group), threads);
  }

 private:
  static constexpr int threads = 2 * gpu::WarpTile<>::width;
  static CUTLASS_DEVICE int isReady(int group) { return consumerBarriers().specialized(group); }
  static CUTLASS_DEVICE int isStored(int group) { return consumerBarriers().specialized(2 + group); }

  bool hasStored_ = false;  ///< this warp has stored a tile and not handed it over
  int group_ = 0;           ///< of this thread
  unsigned tiles_ = 0;      ///< that the receiving warp has seen
};

}  // namespace mscclpp::detail
