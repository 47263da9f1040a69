// The shape of a tile of a matrix product.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The shape of a tile and of the warps that compute it.
struct GemmShape {
  int rows = 128;       ///< of the tile; a warp has a multiple of 16
  int columns = 128;    ///< a warp has a multiple of 16
  int depth = 64;       ///< elements of a row that are loaded in one step: 32, 64, 128 or 256 bytes
  int stages = 3;       ///< steps whose operands fit in shared memory, at least 2
  int warpRows = 2;     ///< warps among which the rows are divided
  int warpColumns = 4;  ///< and the columns
  int warpDepths = 1;   ///< and the depth of a step; a warp has a multiple of 32 bytes

  /// The same shape with another depth: of fp8 twice as many elements are as many bytes.
  MSCCLPP_HOST_DEVICE constexpr GemmShape withDepth(int elements) const {
    GemmShape shape = *this;
    shape.depth = elements;
    return shape;
  }
  MSCCLPP_HOST_DEVICE constexpr int warps() const { return warpRows * warpColumns * warpDepths; }
  /// Bytes of shared memory of a block, aligned to 128: for the operands, and then for partial sums and the result, of
  /// elements of so many bytes.
  MSCCLPP_HOST_DEVICE constexpr std::size_t sharedBytes(std::size_t operandBytes, std::size_t resultBytes) const {
    const auto operands = static_cast<std::size_t>(stages * (rows + columns) * depth) * operandBytes;
    const auto result = static_cast<std::size_t>(rows) * resultPitch(columns) * resultBytes + partialBytes();
    return operands > result ? operands : result;
  }
  /// Bytes of the sums of all warps but those with the first part of the depth.
  MSCCLPP_HOST_DEVICE constexpr std::size_t partialBytes() const {
    return static_cast<std::size_t>((warpDepths - 1) * rows * columns) * sizeof(float);
  }
  /// Elements between the rows of a result in shared memory: one pack more than a row, so that the rows that a warp
  /// writes together lie in different banks.
  static MSCCLPP_HOST_DEVICE constexpr std::size_t resultPitch(int columns) {
    return static_cast<std::size_t>(columns) + 8;
  }
};

}  // namespace mscclpp
