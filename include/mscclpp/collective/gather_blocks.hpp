// What the scratches of a row gather have in common: the rows of each rank in blocks and parts.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The rows of a row gather (collective/row_gather.hpp) of elements T.
template <class T>
struct GatherBlocks {
  using Element = T;
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;

  std::size_t rows;     ///< the most rows of a rank
  std::size_t columns;  ///< elements between rows; rowBytes() is a multiple of 16
  int rowsPerBlock;     ///< consecutive rows of a rank that are awaited together
  int rowsPerPart;      ///< rows of a block that one warp sends; a block has at most 32 parts
  int ranks;

  MSCCLPP_HOST_DEVICE std::size_t rowBytes() const { return columns * sizeof(T); }
  MSCCLPP_HOST_DEVICE int partsPerBlock() const { return (rowsPerBlock + rowsPerPart - 1) / rowsPerPart; }
  MSCCLPP_HOST_DEVICE std::size_t blocks() const { return ceilDivide(rows, static_cast<std::size_t>(rowsPerBlock)); }
  /// Whether slices of this size fit.
  MSCCLPP_HOST_DEVICE bool accepts(std::size_t rowsOfRank) const {
    return rowsOfRank <= rows && rowsPerBlock > 0 && rowsPerPart > 0 && partsPerBlock() <= 32 &&
           rowBytes() % sizeof(Word128) == 0;
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
