// What the scratches of a row gather have in common: the rows of each rank in blocks, and those in parts.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The rows of a row gather (collective/row_gather.hpp) of elements T. scales: floats that are sent with each row, such
/// as the scale of a row of fp8.
template <class T, int scales = 0>
struct GatherBlocks {
  using Element = T;
  static constexpr int scalesPerRow = scales;
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;

  std::size_t rows;     ///< the most rows of a rank
  std::size_t columns;  ///< elements between rows; rowBytes() is a multiple of 16
  int rowsPerBlock;     ///< consecutive rows of a rank, which readers read together
  int rowsPerPart;      ///< rows of a block of which a warp sends some columns; the fewer, the more parts a block has
  std::size_t columnsPerPart;  ///< multiples of 16 bytes, which readers can await one after the other; or all columns
  int ranks;

  MSCCLPP_HOST_DEVICE std::size_t rowBytes() const { return columns * sizeof(T); }
  /// Of the scales of so many rows.
  static MSCCLPP_HOST_DEVICE std::size_t scaleBytes(std::size_t ofRows) { return ofRows * scales * sizeof(float); }
  /// A block has parts in so many rows of parts, and of columns of parts.
  MSCCLPP_HOST_DEVICE int rowParts() const { return (rowsPerBlock + rowsPerPart - 1) / rowsPerPart; }
  MSCCLPP_HOST_DEVICE int columnParts() const { return static_cast<int>(ceilDivide(columns, columnsPerPart)); }
  MSCCLPP_HOST_DEVICE int partsPerBlock() const { return rowParts() * columnParts(); }
  /// The number of a part in its block.
  MSCCLPP_HOST_DEVICE int partAt(int columnPart, int rowPart) const { return columnPart * rowParts() + rowPart; }
  MSCCLPP_HOST_DEVICE std::size_t blocks() const { return ceilDivide(rows, static_cast<std::size_t>(rowsPerBlock)); }
  /// Whether slices of this size fit.
  MSCCLPP_HOST_DEVICE bool accepts(std::size_t rowsOfRank) const {
    return rowsOfRank <= rows && rowsPerBlock > 0 && rowsPerPart > 0 && rowBytes() % sizeof(Word128) == 0 &&
           columnsPerPart > 0 && (columnsPerPart == columns || columnsPerPart * sizeof(T) % sizeof(Word128) == 0);
  }

 protected:
  /// Bytes of the 64-bit words of all parts of the blocks of so many ranks.
  MSCCLPP_HOST_DEVICE std::size_t readyBytes(int ofRanks) const { return readyIndex(ofRanks, 0, 0) * 8; }
  /// The number of the word of a part of a block of the rank with this index.
  MSCCLPP_HOST_DEVICE std::size_t readyIndex(int index, std::size_t block, int part) const {
    return (static_cast<std::size_t>(index) * blocks() + block) * static_cast<std::size_t>(partsPerBlock()) +
           static_cast<std::size_t>(part);
  }
};

}  // namespace mscclpp
