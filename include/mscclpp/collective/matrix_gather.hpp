// The scratch of a row gather into one matrix, in which each rank has its own rows in place.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The window of a row gather (collective/row_gather.hpp) of elements T whose rows form one matrix without gaps, for
/// readers that take the whole matrix, such as a TMA descriptor. A rank's own rows are in the matrix before the call.
/// All words come first, so that calls of different sizes do not mistake rows for words.
template <class T>
struct MatrixGather {
  using Element = T;
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;

  std::size_t rows;     ///< the most rows of a rank
  std::size_t columns;  ///< elements of a row; rowBytes() is a multiple of 16
  int rowsPerBlock;     ///< consecutive rows of a rank that are awaited together
  int rowsPerPart;      ///< rows of a block that one warp sends; a block has at most 32 parts
  int ranks;
  std::size_t slice;  ///< of this call: rows divided by ranks, rounded up

  MSCCLPP_HOST_DEVICE std::size_t rowBytes() const { return columns * sizeof(T); }
  MSCCLPP_HOST_DEVICE int partsPerBlock() const { return (rowsPerBlock + rowsPerPart - 1) / rowsPerPart; }
  MSCCLPP_HOST_DEVICE std::size_t blocks() const { return ceilDivide(rows, static_cast<std::size_t>(rowsPerBlock)); }
  /// Whether slices of this size fit.
  MSCCLPP_HOST_DEVICE bool accepts(std::size_t rowsOfRank) const {
    return rowsOfRank <= rows && rowsOfRank == slice && rowsPerBlock > 0 && rowsPerPart > 0 && partsPerBlock() <= 32 &&
           rowBytes() % sizeof(Word128) == 0;
  }

  /// Offset in the window, in bytes, of the matrix.
  MSCCLPP_HOST_DEVICE std::size_t matrixOffset() const {
    return roundUp(entryOffset(ranks), 256);  // a base that suits TMA
  }
  /// Of a row of rank `from`, the same at all ranks.
  MSCCLPP_HOST_DEVICE std::size_t rowOffset(int /*at*/, int from, std::size_t row) const {
    return matrixOffset() + (static_cast<std::size_t>(from) * slice + row) * rowBytes();
  }
  /// Of the word of a part of a block of rows.
  MSCCLPP_HOST_DEVICE std::size_t readyOffset(int /*at*/, int from, std::size_t block, int part) const {
    const std::size_t index = static_cast<std::size_t>(from) * blocks() + block;
    return (index * static_cast<std::size_t>(partsPerBlock()) + static_cast<std::size_t>(part)) * 8;
  }
  /// Of the 64-bit word with the last call that rank `from` has entered.
  MSCCLPP_HOST_DEVICE std::size_t entryOffset(int from) const {
    return roundUp(static_cast<std::size_t>(ranks) * blocks() * static_cast<std::size_t>(partsPerBlock()) * 8, 128) +
           static_cast<std::size_t>(from) * 8;
  }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const {
    return matrixOffset() + static_cast<std::size_t>(ranks) * rows * rowBytes();
  }
};

}  // namespace mscclpp
