// The scratch of a row exchange whose producers are the tiles of a GEMM: each tile is one piece of memory.
#pragma once

#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A RowScratch in which the contributions to a block of rows, and its results, lie tile by tile instead of row by row,
/// so that a tile is copied to another rank as a whole; and tiles that wait to be copied. `columns` is that of the
/// problem rounded up to a multiple of the columns of a tile, and `rows` a multiple of rowsPerBlock, the rows of a
/// tile.
template <class T, RowDelivery rowDelivery>
struct TileScratch : RowScratch<T, rowDelivery> {
  using Base = RowScratch<T, rowDelivery>;
  using typename Base::Owners;

  /// The most blocks of threads: the most multiprocessors of a GPU of compute capability 9.0.
  static constexpr int maxBlocks = 144;
  /// Tiles that a block has: one is copied while the next one is stored.
  static constexpr int tilesInFlight = 2;

  std::size_t stagingBytes;  ///< of all blocks

  /// Offset in the window, in bytes, of the tile that rank `from` contributes to a block of rows. index: of the tile
  /// among those of the block, columnTiles, each of tileBytes bytes.
  MSCCLPP_HOST_DEVICE std::size_t tileOffset(std::uint64_t epoch, std::size_t block, int from, std::size_t index,
                                             std::size_t columnTiles, std::size_t tileBytes) const {
    return this->contributionOffset(epoch, 0, from) +
           (Owners::index(block, this->ranks) * columnTiles + index) * tileBytes;
  }
  /// Of a tile of a block's results.
  MSCCLPP_HOST_DEVICE std::size_t resultTileOffset(std::uint64_t epoch, std::size_t block, std::size_t index,
                                                   std::size_t columnTiles, std::size_t tileBytes) const {
    return this->resultOffset(epoch, 0) + (block * columnTiles + index) * tileBytes;
  }
  /// Of the tiles that wait, in this rank's own window.
  MSCCLPP_HOST_DEVICE std::size_t stagingOffset() const { return roundUp(Base::windowBytes(), 1024); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return stagingOffset() + stagingBytes; }
};

}  // namespace mscclpp
