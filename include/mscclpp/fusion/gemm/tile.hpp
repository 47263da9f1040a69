// A tile of a matrix product, computed by warps on tensor cores: the main loop of a GEMM and the way out of registers.
#pragma once

#include "mscclpp/arch/async_copy.hpp"
#include "mscclpp/arch/load_matrix.hpp"
#include "mscclpp/arch/mma.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element_kind.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"

namespace mscclpp {

/// The shape of a tile and of the warps that compute it.
struct GemmShape {
  int rows = 128;       ///< of the tile; a warp has a multiple of 16
  int columns = 128;    ///< a warp has a multiple of 16
  int depth = 64;       ///< elements of a row that are loaded in one step: 16, 32 or 64
  int stages = 3;       ///< steps whose operands fit in shared memory, at least 2
  int warpRows = 2;     ///< warps among which the rows are divided
  int warpColumns = 4;  ///< and the columns

  MSCCLPP_HOST_DEVICE constexpr int warps() const { return warpRows * warpColumns; }
  /// Bytes of shared memory of a block, aligned to 128: for the operands, and then for the result.
  MSCCLPP_HOST_DEVICE constexpr std::size_t sharedBytes(std::size_t elementBytes) const {
    const auto operands = static_cast<std::size_t>(stages * (rows + columns) * depth) * elementBytes;
    const auto result = static_cast<std::size_t>(rows) * resultPitch(columns) * elementBytes;
    return operands > result ? operands : result;
  }
  /// Elements between the rows of a result in shared memory: one pack more than a row, so that the rows that a warp
  /// writes together lie in different banks.
  static MSCCLPP_HOST_DEVICE constexpr std::size_t resultPitch(int columns) {
    return static_cast<std::size_t>(columns) + 8;
  }
};

/// Computes tiles of input * transpose of weight, for elements T (bf16 or f16), accumulated in fp32 in the order of the
/// depth. Made by all threads of a grid whose blocks have shape.warps() warps of 32 lanes, with shape.sharedBytes() of
/// shared memory. The same bits in every run.
///
/// A main loop of asynchronous copies and mma.sync, which every GPU since Ampere has and emulation runs. Hopper's wgmma
/// is faster.
template <class T, GemmShape shape, Grid GridType>
class GemmTile {
 public:
  MSCCLPP_INLINE GemmTile(const GridType& grid, std::byte* shared)
      : block_(grid.block()), warp_(grid.warp()), warpIndex_(grid.warpIndex()), shared_(shared) {}

  /// Computes the tile whose element (0, 0) is element (row, column) of the product; input and weight have the same
  /// number of columns. What lies outside of the matrices counts as 0. Called by all threads.
  MSCCLPP_INLINE void multiply(const Matrix<const T>& input, std::size_t row, const Matrix<const T>& weight,
                               std::size_t column) {
    MSCCLPP_UNROLL
    for (auto& fragments : sums_) {
      MSCCLPP_UNROLL
      for (auto& fragment : fragments) {
        MSCCLPP_UNROLL
        for (float& sum : fragment) sum = 0.0f;
      }
    }
    const Operand<shape.rows> a(input, row, block_.rank());
    const Operand<shape.columns> b(weight, column, block_.rank());
    const auto steps = static_cast<int>((input.columns + shape.depth - 1) / shape.depth);
    const auto load = [&](int step) {
      if (step < steps) {
        std::byte* const to = shared_ + step % shape.stages * stageBytes;
        a.load(step, to);
        b.load(step, to + operandBytes(shape.rows));
      }
      arch::copyAsyncCommit();  // an empty group at the end keeps the count of groups
    };
    MSCCLPP_UNROLL
    for (int step = 0; step < shape.stages - 1; ++step) load(step);
    MSCCLPP_NO_UNROLL
    for (int step = 0; step < steps; ++step) {
      arch::copyAsyncWait<shape.stages - 2>();
      block_.sync();  // the operands of this step are complete, and those of the step before no longer needed
      load(step + shape.stages - 1);
      multiplyStep(shared_ + step % shape.stages * stageBytes);
    }
    arch::copyAsyncWait<0>();
    block_.sync();
  }

  /// Applies op to the tile (fusion/gemm/pair_op.hpp) and calls f(row, column, pack) for each pack of its result, row
  /// and column counted from the tile's first. width: columns of the product; results of columns beyond it are 0. By
  /// way of shared memory, so that a warp holds whole parts of rows, which travel best. Called by all threads, with the
  /// row and column of multiply().
  template <class PairOp, class F>
  MSCCLPP_INLINE void forEachPack(std::size_t row, std::size_t column, std::size_t width, const PairOp& op,
                                  const F& f) {
    constexpr int outputs = PairOp::outputs;
    static_assert(outputs == 1 || outputs == 2);
    constexpr int columns = shape.columns / 2 * outputs;
    constexpr std::size_t pitch = GemmShape::resultPitch(columns);
    T* const result = reinterpret_cast<T*>(shared_);
    const int g = warp_.rank() / 4;
    const int t = warp_.rank() % 4;
    MSCCLPP_UNROLL
    for (int i = 0; i < rowFragments; ++i) {
      MSCCLPP_UNROLL
      for (int j = 0; j < columnFragments; ++j) {
        MSCCLPP_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int r = firstRow() + i * 16 + half * 8 + g;
          const int c = firstColumn() + j * 8 + t * 2;
          Vector<T, outputs> values = {};
          if (column + static_cast<std::size_t>(c) < width) {
            values = op(row + static_cast<std::size_t>(r), column + static_cast<std::size_t>(c), sums_[i][j][2 * half],
                        sums_[i][j][2 * half + 1]);
          }
          T* const to = result + static_cast<std::size_t>(r) * pitch + c / 2 * outputs;
          if constexpr (outputs == 2) {
            arch::storePlain(to, arch::bitCast<std::uint32_t>(values));
          } else {
            *to = values[0];
          }
        }
      }
    }
    block_.sync();
    constexpr int packs = columns / packSize<T>;
    for (int i = block_.rank(); i < shape.rows * packs; i += block_.size()) {
      const int r = i / packs;
      const int c = i % packs * packSize<T>;
      f(static_cast<std::size_t>(r), static_cast<std::size_t>(c),
        fromWord<T>(arch::loadWide(result + static_cast<std::size_t>(r) * pitch + c)));
    }
    block_.sync();
  }

 private:
  static_assert(sizeof(T) == 2 && hasElementKind<T>, "matrix products are of bf16 or f16");
  static_assert(shape.depth == 16 || shape.depth == 32 || shape.depth == 64, "the depth of a step is 16, 32 or 64");
  static_assert(shape.stages >= 2, "a step is loaded while another is computed");
  static_assert(shape.rows % (16 * shape.warpRows) == 0 && shape.columns % (16 * shape.warpColumns) == 0,
                "a warp computes a multiple of 16 rows and of 16 columns");

  static constexpr int threads = shape.warps() * 32;
  static constexpr int chunks = shape.depth / packSize<T>;  ///< packs of a row in a step
  static constexpr int rowFragments = shape.rows / shape.warpRows / 16;
  static constexpr int columnFragments = shape.columns / shape.warpColumns / 8;
  static constexpr int stageBytes = (shape.rows + shape.columns) * shape.depth * static_cast<int>(sizeof(T));

  static MSCCLPP_HOST_DEVICE constexpr int operandBytes(int rows) {
    return rows * shape.depth * static_cast<int>(sizeof(T));
  }
  /// Where a pack of a row is in the operands of a step: permuted, so that eight rows lie in different banks.
  static MSCCLPP_INLINE int packOffset(int row, int chunk) {
    return (row * chunks + (chunk ^ row % chunks)) * static_cast<int>(sizeof(Word128));
  }

  /// The part of an operand that a thread loads: one pack in every rowsAtOnce-th row.
  template <int tileRows>
  class Operand {
   public:
    MSCCLPP_INLINE Operand(const Matrix<const T>& matrix, std::size_t firstRow, int thread)
        : matrix_(matrix),
          row_(firstRow + static_cast<std::size_t>(thread / chunks)),
          chunk_(thread % chunks),
          slot_(packOffset(thread / chunks, thread % chunks)),
          isAligned_(matrix.isPackAligned()) {
      static_assert(threads % chunks == 0 && tileRows % rowsAtOnce == 0 && rowsAtOnce % chunks == 0,
                    "the threads of a block load whole rows of a tile");
    }
    MSCCLPP_INLINE void load(int step, std::byte* to) const {
      const std::size_t column = static_cast<std::size_t>(step * chunks + chunk_) * packSize<T>;
      const std::size_t left = column < matrix_.columns ? matrix_.columns - column : 0;
      const int present = left < packSize<T> ? static_cast<int>(left) : packSize<T>;
      MSCCLPP_UNROLL
      for (int i = 0; i < tileRows / rowsAtOnce; ++i) {
        const std::size_t row = row_ + static_cast<std::size_t>(i) * rowsAtOnce;
        const int valid = row < matrix_.rows ? present : 0;
        const T* const from = valid > 0 ? matrix_.row(row) + column : matrix_.data;
        std::byte* const slot = to + slot_ + operandBytes(i * rowsAtOnce);
        if (isAligned_) {
          arch::copyAsync(slot, from, static_cast<std::uint32_t>(valid) * sizeof(T));
        } else {
          Pack<T> pack = fromWord<T>(Word128{0, 0});
          MSCCLPP_UNROLL
          for (int k = 0; k < packSize<T>; ++k) {
            if (k < valid) pack[k] = from[k];
          }
          arch::storeWide(slot, toWord<T>(pack));
        }
      }
    }

   private:
    static constexpr int rowsAtOnce = threads / chunks;

    const Matrix<const T>& matrix_;
    const std::size_t row_;
    const int chunk_;
    const int slot_;  ///< rowsAtOnce is a multiple of the permutation's period, so it is the same in all rows
    const bool isAligned_;
  };

  MSCCLPP_INLINE int firstRow() const { return warpIndex_ / shape.warpColumns * rowFragments * 16; }
  MSCCLPP_INLINE int firstColumn() const { return warpIndex_ % shape.warpColumns * columnFragments * 8; }

  /// Adds the product of the operands in a stage.
  MSCCLPP_INLINE void multiplyStep(const std::byte* stage) {
    const std::byte* const weight = stage + operandBytes(shape.rows);
    MSCCLPP_UNROLL
    for (int k = 0; k < chunks; k += 2) {
      std::uint32_t a[rowFragments][4];
      std::uint32_t b[columnFragments / 2][4];  // of two fragments each
      MSCCLPP_UNROLL
      for (int i = 0; i < rowFragments; ++i) {
        arch::loadMatrices(
            warp_, a[i], [&](int lane) { return stage + packOffset(firstRow() + i * 16 + lane % 16, k + lane / 16); });
      }
      MSCCLPP_UNROLL
      for (int j = 0; j < columnFragments / 2; ++j) {
        arch::loadMatrices(warp_, b[j], [&](int lane) {
          return weight + packOffset(firstColumn() + j * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2);
        });
      }
      MSCCLPP_UNROLL
      for (int i = 0; i < rowFragments; ++i) {
        MSCCLPP_UNROLL
        for (int j = 0; j < columnFragments; ++j) {
          const std::uint32_t column[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          arch::multiplyAdd<elementKind<T>>(warp_, sums_[i][j], a[i], column);
        }
      }
    }
  }

  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
  using Block = decltype(someGrid().block());
  using Warp = decltype(someGrid().warp());

  const Block block_;
  const Warp warp_;
  const int warpIndex_;
  std::byte* const shared_;
  float sums_[rowFragments][columnFragments][4];
};

}  // namespace mscclpp
