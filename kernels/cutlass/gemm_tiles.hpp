// The tiles of the compiled GEMMs of CUTLASS, and which one a call has.
#pragma once

#include "mscclpp/fusion/cutlass/tile_choice.hpp"

namespace mscclpp::kernels {

/// The tiles of the compiled kernels of CUTLASS, as indices in cutlassTiles: those for many rows. Both have blocks of
/// as many rows, so that their calls share a scratch.
inline constexpr int cutlassGemmTiles[] = {0, 2};
inline constexpr int cutlassGemmTileRows = cutlassTiles[cutlassGemmTiles[0]].rows;
static_assert(cutlassTiles[cutlassGemmTiles[1]].rows == cutlassGemmTileRows);

/// The tile of a call, of cutlassGemmTiles, on so many multiprocessors.
inline int cutlassGemmTileFor(int rows, int width, int depth, int multiprocessors) {
  const auto time = [&](int tile) { return cutlassTime(tile, rows, width, depth, multiprocessors); };
  return time(cutlassGemmTiles[1]) < time(cutlassGemmTiles[0]) ? cutlassGemmTiles[1] : cutlassGemmTiles[0];
}

}  // namespace mscclpp::kernels
