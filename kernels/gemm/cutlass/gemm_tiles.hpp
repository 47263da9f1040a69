// The tiles of the compiled GEMMs of CUTLASS, and which one a call has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/fusion/cutlass/tile_choice.hpp"

namespace mscclpp::kernels {

/// The tiles of the compiled kernels of CUTLASS, as indices in cutlassTiles: those for many rows. All have blocks of as
/// many rows, so that their calls share a scratch.
struct CutlassGemmTiles {
  int tiles[4];
  int count;

  constexpr const int* begin() const { return tiles; }
  constexpr const int* end() const { return tiles + count; }
};
/// Those of all-gathers, or of reductions, which would gain little from others.
constexpr CutlassGemmTiles cutlassGemmTiles(DataType operands, bool gathers) {
  return operands == DataType::BFLOAT16 ? CutlassGemmTiles{{0, 2, 4, 1}, gathers ? 4 : 2}
                                        : CutlassGemmTiles{{5, 6, 8, 7}, gathers ? 4 : 3};
}
inline constexpr int cutlassGemmTileRows = cutlassTiles[0].rows;
static_assert(std::ranges::all_of(cutlassTiles,
                                  [](const CutlassTile& tile) { return tile.rows == cutlassGemmTileRows; }));

/// Of which the columns of a scratch that the calls of these tiles share are a multiple.
constexpr std::size_t cutlassGemmColumns(const CutlassGemmTiles& tiles) {
  int columns = 1;
  for (const int tile : tiles) columns = std::lcm(columns, cutlassTiles[tile].columns);
  return static_cast<std::size_t>(columns);
}

/// The tile of a call, of these, with so many blocks.
inline int cutlassGemmTileFor(const CutlassGemmTiles& tiles, int rows, int width, int depth, int blocks) {
  const auto time = [&](int tile) { return cutlassTime(tile, rows, width, depth, blocks); };
  return *std::min_element(tiles.begin(), tiles.end(), [&](int a, int b) { return time(a) < time(b); });
}

/// The most rows of tiles between which a kernel with this tile alternates (CUTLASS's swizzle): several share more of
/// the weights in the L2 cache. But CUTLASS rounds the rows and columns of tiles up to multiples of it, and blocks that
/// get such tiles are idle: so as many as leave at least eight of nine tiles in the problem, and need no further round
/// of the blocks. And the first `first` rows of tiles wait for no other rank, where the later ones do: the kernel does
/// not alternate between the two kinds, which would make early tiles wait for late ones.
inline int cutlassGemmSwizzle(int tile, int rows, int width, int first, int blocks) {
  const auto tiles = [&](int swizzle) { return cutlassTilesOf(tile, rows, width, swizzle); };
  const auto rounds = [&](int swizzle) { return cutlassRounds(tile, rows, width, blocks, swizzle); };
  const auto isGood = [&](int swizzle) {
    return 8 * tiles(swizzle) <= 9 * tiles(1) && rounds(swizzle) == rounds(1) &&
           first % (swizzle * cutlassTiles[tile].clusterRows) == 0;
  };
  int swizzle = 4;
  while (swizzle > 1 && !isGood(swizzle)) swizzle /= 2;
  return swizzle;
}

}  // namespace mscclpp::kernels
