// How a tile passes from the warps that store it to the warp that makes it known to other ranks.
#pragma once

#include <cutlass/cutlass.h>

#include <cute/tensor.hpp>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"

namespace mscclpp::detail {

/// A thread's part in it, in a warp-specialised kernel of CUTLASS. The receiving warp is the one that loads C in other
/// epilogues: a release takes as long as the link, and no other warp waits for it. Groups of warps that store tiles:
/// two take turns in a pingpong kernel, where one has 128 threads.
class TileHandover {
 public:
  static constexpr int mostGroups = 2;
  template <class TiledMma>
  static constexpr int groups = cute::size(TiledMma{}) == 128 ? 2 : 1;

  /// By a thread that stores a tile, before note(): the group that it belongs to.
  template <class TiledMma>
  CUTLASS_DEVICE int ownGroup() {
    group_ = groups<TiledMma> == 1 ? 0 : cutlass::canonical_warp_group_idx() - 1;
    return group_;
  }
  /// By the receiving warp, for each tile in turn, also for those that it does not take: the group that stores it.
  template <class TiledMma>
  CUTLASS_DEVICE int nextGroup() {
    return static_cast<int>(tiles_++ % groups<TiledMma>);
  }

  /// By the warps that store tiles: `hasStored` of the first warp of a group, which issues the stores.
  CUTLASS_DEVICE void note(bool hasStored) { hasStored_ = hasStored; }
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
