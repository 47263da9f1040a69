// How the operands of a tile of a matrix product come to shared memory.
#pragma once

#include "mscclpp/arch/async_copy.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"

namespace mscclpp {

/// How the rows of an operand lie in a stage of shared memory, one after the other, for elements T.
template <class T, GemmShape shape>
struct StepLayout {
  static constexpr int rowBytes = shape.depth * static_cast<int>(sizeof(T));
  static_assert(rowBytes == 32 || rowBytes == 64 || rowBytes == 128 || rowBytes == 256,
                "the depth of a step is 32, 64, 128 or 256 bytes");
  static constexpr int chunks = shape.depth / packSize<T>;  ///< packs of a row in a step
  static constexpr int period = chunks < 8 ? chunks : 8;    ///< rows after which the places of packs repeat

  static MSCCLPP_HOST_DEVICE constexpr int bytes(int rows) { return rows * rowBytes; }
  /// Where a pack of a row is: permuted, so that eight rows lie in different banks.
  static MSCCLPP_INLINE int packOffset(int row, int chunk) {
    return (row * chunks + (chunk ^ row % period)) * static_cast<int>(sizeof(Word128));
  }
};

/// The part of an operand of a tile, a block of tileRows rows of a matrix, that a thread of shape.warps() warps loads:
/// one pack in every rowsAtOnce-th row.
template <class T, GemmShape shape, int tileRows>
class TileOperand {
  using Layout = StepLayout<T, shape>;

 public:
  MSCCLPP_INLINE TileOperand(const Matrix<const T>& matrix, std::size_t firstRow, int thread)
      : slot_(Layout::packOffset(thread / chunks, thread % chunks)),
        isAligned_(matrix.isPackAligned()),
        wholeSteps_(static_cast<int>(matrix.columns / shape.depth)) {
    static_assert(threads % chunks == 0 && tileRows % rowsAtOnce == 0 && rowsAtOnce % Layout::period == 0,
                  "the threads of a block load whole rows of a tile");
    const std::size_t row = firstRow + static_cast<std::size_t>(thread / chunks);
    const auto column = static_cast<std::size_t>(thread % chunks * packSize<T>);
    const std::size_t left = matrix.columns % shape.depth;
    first_ = row < matrix.rows && column < matrix.columns ? matrix.row(row) + column : matrix.data;
    stride_ = std::size_t{rowsAtOnce} * matrix.pitch;
    lastPresent_ = left <= column ? 0 : left - column < packSize<T> ? static_cast<int>(left - column) : packSize<T>;
    const std::size_t rowsLeft = row < matrix.rows ? matrix.rows - row : 0;
    rows_ = rowsLeft >= std::size_t{tileRows} ? loads
                                              : static_cast<int>((rowsLeft + rowsAtOnce - 1) / std::size_t{rowsAtOnce});
  }
  /// Starts to load this thread's packs of a step to the operand in a stage, in its open group of asynchronous copies;
  /// what is not in the matrix becomes 0.
  MSCCLPP_INLINE void load(int step, std::byte* to) const {
    const int present = step < wholeSteps_ ? packSize<T> : lastPresent_;
    const T* const from = first_ + static_cast<std::size_t>(step) * shape.depth;
    if (!isAligned_) return loadElements(present, from, to);
    MSCCLPP_UNROLL
    for (int i = 0; i < loads; ++i) {
      const int valid = i < rows_ ? present : 0;
      const T* const address = valid > 0 ? from + static_cast<std::size_t>(i) * stride_ : first_;
      arch::copyAsync(to + slot_ + Layout::bytes(i * rowsAtOnce), address,
                      static_cast<std::uint32_t>(valid) * sizeof(T));
    }
  }

 private:
  static constexpr int threads = shape.warps() * 32;
  static constexpr int chunks = Layout::chunks;
  static constexpr int rowsAtOnce = threads / chunks;
  static constexpr int loads = tileRows / rowsAtOnce;

  /// From rows that do not begin at a multiple of 16 bytes.
  MSCCLPP_INLINE void loadElements(int present, const T* from, std::byte* to) const {
    MSCCLPP_NO_UNROLL
    for (int i = 0; i < loads; ++i) {
      Pack<T> pack = fromWord<T>(Word128{0, 0});
      MSCCLPP_UNROLL
      for (int k = 0; k < packSize<T>; ++k) {
        if (i < rows_ && k < present)
          pack[k] = from[static_cast<std::size_t>(i) * stride_ + static_cast<std::size_t>(k)];
      }
      arch::storeWide(to + slot_ + Layout::bytes(i * rowsAtOnce), toWord<T>(pack));
    }
  }

  const int slot_;  ///< rowsAtOnce is a multiple of the permutation's period, so it is the same in all rows
  const bool isAligned_;
  const int wholeSteps_;  ///< without an edge
  int lastPresent_;       ///< elements of this thread's pack in the step after those
  int rows_;              ///< of those that this thread loads, in the matrix
  const T* first_;        ///< this thread's first pack
  std::size_t stride_;    ///< elements to its next row
};

}  // namespace mscclpp
