// The groups of warps that store tiles in a warp-specialised kernel of CUTLASS.
#pragma once

#include <cutlass/cutlass.h>

#include <cute/tensor.hpp>

namespace mscclpp::detail {

inline constexpr int mostTileGroups = 2;

/// In a pingpong kernel two groups take turns with the tiles of a block, and one has 128 threads; in a cooperative one
/// all consumers are one group.
template <class TiledMma>
struct TileGroups {
  static constexpr int count = cute::size(TiledMma{}) == 128 ? 2 : 1;

  /// The group of the calling thread, a consumer. Called by all lanes of its warp: CUTLASS shuffles.
  static CUTLASS_DEVICE int own() { return count == 1 ? 0 : cutlass::canonical_warp_group_idx() - 1; }
  /// The group that stores the i-th tile of a block.
  static CUTLASS_DEVICE int ofTile(unsigned i) { return static_cast<int>(i % count); }
};

}  // namespace mscclpp::detail
