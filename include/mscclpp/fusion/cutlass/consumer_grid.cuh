// The consumers of a warp-specialised kernel of CUTLASS, as a grid of the library's.
#pragma once

#include "mscclpp/basic/barrier_ids.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::detail {

// The hardware barriers of a block that are the library's; CUTLASS uses those below 8.

/// Of the consumers of an AllGatherGemmKernel, and the warp that sends beside them.
inline constexpr int sentBarrier = 9;
/// Of consumerGrid(): the last ones.
MSCCLPP_DEVICE __forceinline__ BarrierIds consumerBarriers() {
  return BarrierIds{16 - BarrierIds::count};
}
/// The warps of the consumers of a warp-specialised kernel of CUTLASS, whose first warp group loads, as a grid.
MSCCLPP_DEVICE __forceinline__ gpu::WarpGrid consumerGrid() {
  constexpr int producerWarps = 4;
  const gpu::Grid grid;
  return grid.warps(producerWarps, grid.warpCount() - producerWarps, consumerBarriers());
}

}  // namespace mscclpp::detail
