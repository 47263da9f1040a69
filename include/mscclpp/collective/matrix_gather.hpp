// The scratch of a row gather into one matrix, in which each rank has its own rows in place.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/gather_blocks.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The window of a row gather (collective/row_gather.hpp) of elements T whose rows form one matrix without gaps, for
/// readers that take the whole matrix, such as a TMA descriptor. A rank's own rows are in the matrix before the call,
/// and their scales, if there are any, in the array of scales of all rows. All words come first, so that calls of
/// different sizes do not mistake rows for words.
template <class T, int scales = 0>
struct MatrixGather : GatherBlocks<T, scales> {
  using Blocks = GatherBlocks<T, scales>;
  using Blocks::ranks;
  using Blocks::rowBytes;
  using Blocks::rows;
  using Blocks::scaleBytes;

  std::size_t slice;  ///< of this call: rows divided by ranks, rounded up

  /// Whether slices of this size fit.
  MSCCLPP_HOST_DEVICE bool accepts(std::size_t rowsOfRank) const {
    return rowsOfRank == slice && Blocks::accepts(rowsOfRank);
  }

  /// Offset in the window, in bytes, of the matrix.
  MSCCLPP_HOST_DEVICE std::size_t matrixOffset() const {
    return roundUp(scalesStart() + scaleBytes(static_cast<std::size_t>(ranks) * rows), 256);  // a base that suits TMA
  }
  /// Of a row of rank `from`, the same at all ranks.
  MSCCLPP_HOST_DEVICE std::size_t rowOffset(int /*at*/, int from, std::size_t row) const {
    return matrixOffset() + rowInMatrix(from, row) * rowBytes();
  }
  /// Of the scales of a row, behind which are those of the next row of the matrix.
  MSCCLPP_HOST_DEVICE std::size_t scalesOffset(int /*at*/, int from, std::size_t row) const {
    return scalesStart() + scaleBytes(rowInMatrix(from, row));
  }
  /// Of the word of a part of a block of rows.
  MSCCLPP_HOST_DEVICE std::size_t readyOffset(int /*at*/, int from, std::size_t block, int part) const {
    return this->readyIndex(from, block, part) * 8;
  }
  /// Of the 64-bit word with the last call that rank `from` has entered.
  MSCCLPP_HOST_DEVICE std::size_t entryOffset(int from) const {
    return roundUp(this->readyBytes(ranks), 128) + static_cast<std::size_t>(from) * 8;
  }
  /// For senders that tell when a peer has all of their rows: of the 64-bit word with the last call in which this rank
  /// has those of rank `from`. One without rows may write it before this rank has entered the call: compare it with ==.
  MSCCLPP_HOST_DEVICE std::size_t completeOffset(int from) const { return entryOffset(ranks + from); }
  /// Of a 64-bit word of this rank alone, to count them; zero between calls until one fails.
  MSCCLPP_HOST_DEVICE std::size_t sendersOffset() const { return roundUp(completeOffset(ranks), 128); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const {
    return matrixOffset() + static_cast<std::size_t>(ranks) * rows * rowBytes();
  }

 private:
  MSCCLPP_HOST_DEVICE std::size_t rowInMatrix(int from, std::size_t row) const {
    return static_cast<std::size_t>(from) * slice + row;
  }
  MSCCLPP_HOST_DEVICE std::size_t scalesStart() const { return roundUp(sendersOffset() + 8, 128); }
};

}  // namespace mscclpp
