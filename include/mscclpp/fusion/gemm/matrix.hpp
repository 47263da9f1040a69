// A matrix in memory, and the row-major operands of a matrix multiplication.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A row-major matrix: element (r, c) is at data[r * pitch + c]. Plain data. Any sizes and alignment work; fastest
/// where every row begins at a multiple of 16 bytes.
template <class T>
struct Matrix {
  T* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t pitch;  ///< elements from row to row, at least columns

  MSCCLPP_INLINE T* row(std::size_t r) const { return data + r * pitch; }
  /// Whether every row begins at a multiple of 16 bytes.
  MSCCLPP_INLINE bool isPackAligned() const {
    return reinterpret_cast<std::uintptr_t>(data) % sizeof(Word128) == 0 && pitch * sizeof(T) % sizeof(Word128) == 0;
  }
};

/// A matrix without gaps between its rows.
template <class T>
MSCCLPP_HOST_DEVICE Matrix<T> makeMatrix(T* data, std::size_t rows, std::size_t columns) {
  return {data, rows, columns, columns};
}

/// What a rank multiplies: input * transpose of weight, as a linear layer does, of elements T. Plain data, the `source`
/// of the collectives of this folder. PairOp: see fusion/gemm/pair_op.hpp.
template <class T, class PairOp>
struct GemmOperands {
  Matrix<const T> input;   ///< rows x depth
  Matrix<const T> weight;  ///< width x depth
  [[no_unique_address]] PairOp op;

  /// Columns of the result.
  MSCCLPP_INLINE std::size_t width() const { return PairOp::outputs == 2 ? weight.rows : weight.rows / 2; }
  /// Whether the sizes belong together: `rows` rows of input, and pairs of weights where a pair gives one result.
  MSCCLPP_INLINE bool fits(std::size_t rows) const {
    return input.rows == rows && input.columns == weight.columns && (PairOp::outputs == 2 || weight.rows % 2 == 0);
  }
};

}  // namespace mscclpp
