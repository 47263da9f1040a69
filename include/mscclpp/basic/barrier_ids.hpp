// The hardware barriers of a block that a grid uses.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp {

/// Ids of the hardware barriers that the threads of a grid synchronise through in each block: `count` ids from `first`.
/// A block has 16 barriers; 0 is __syncthreads(), which a grid of whole blocks uses for block().sync(). Two grids, or a
/// grid and a library such as CUTLASS, that are in use in one block at the same time need ids that do not overlap.
struct BarrierIds {
  static constexpr int count = 6;  ///< a grid of whole blocks uses the first five only

  int first = 1;  ///< 1 to 16 - count

  MSCCLPP_HOST_DEVICE constexpr int workers() const { return first; }  ///< workers().sync()
  /// namedBarrierArrive(barrier) and namedBarrierWait(barrier), barrier 0 to 3.
  MSCCLPP_HOST_DEVICE constexpr int specialized(int barrier) const { return first + 1 + barrier; }
  MSCCLPP_HOST_DEVICE constexpr int span() const { return first + 5; }  ///< block().sync() of a span of warps
};

}  // namespace mscclpp
