// The scratch of a row exchange whose producers are the tiles of a GEMM: each tile is one piece of memory.
#pragma once

#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A RowScratch in which the contributions to a block of rows, and its results, lie tile by tile instead of row by row,
/// so that a tile is copied to another rank as a whole; and room for all tiles of a call, which wait to be copied.
/// `columns` is that of the problem rounded up to a multiple of the columns of a tile, and `rows` a multiple of
/// rowsPerBlock, the rows of a tile.
template <class T, RowDelivery rowDelivery>
struct TileScratch : RowScratch<T, rowDelivery> {
  using Base = RowScratch<T, rowDelivery>;
  using typename Base::Owners;

  static constexpr std::size_t parts = 2;  ///< of a tile, which are sent by a warp each
  static constexpr std::size_t leastTileColumns = 64;

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
  /// Of the tiles that wait, in this rank's own window: as those of contributions, but of all blocks of rows.
  MSCCLPP_HOST_DEVICE std::size_t stagingOffset() const { return roundUp(Base::windowBytes(), 1024); }
  MSCCLPP_HOST_DEVICE std::size_t stagingBytes() const { return this->rows * this->rowBytes(); }
  /// Of the flags that rank `from` sets for a tile of a block, `parts` words of 64 bits: of its contribution, in the
  /// window of the rank that reduces the block, or of the result, in those of all others. Where blocks send for others,
  /// the first word in the window of `from` itself says that the tile is stored there.
  MSCCLPP_HOST_DEVICE std::size_t flagOffset(std::size_t block, int from, std::size_t index) const {
    const std::size_t tile =
        (block * static_cast<std::size_t>(this->ranks) + static_cast<std::size_t>(from)) * mostColumnTiles() + index;
    return stagingOffset() + stagingBytes() + tile * parts * sizeof(std::uint64_t);
  }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return flagOffset(this->blocks(), 0, 0); }

 private:
  MSCCLPP_HOST_DEVICE std::size_t mostColumnTiles() const { return ceilDivide(this->columns, leastTileColumns); }
};

}  // namespace mscclpp
