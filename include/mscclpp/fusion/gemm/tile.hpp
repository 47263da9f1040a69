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
#include "mscclpp/fusion/gemm/tile_operand.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"

namespace mscclpp {

/// Computes tiles of input * transpose of weight, of elements Operand (bf16, f16, or on GPUs since Ada f8e4m3),
/// accumulated in fp32 in the order of the depth; with warpDepths above 1, in so many sums, which are added in order.
/// Ada's tensor cores keep fewer bits of sums of f8e4m3; Hopper's multiply them as f16.
/// Its results are elements T (bf16 or f16). Made by all threads of a grid whose blocks have shape.warps() warps of 32
/// lanes, with shape.sharedBytes() of shared memory. The same bits in every run.
///
/// A main loop of asynchronous copies and mma.sync, which every GPU since Ampere has and emulation runs. Hopper's wgmma
/// is faster with many rows. With few, the time is that of reading the weights, and what counts is how many bytes a
/// multiprocessor has requested: all stages but one.
template <class T, GemmShape shape, Grid GridType, class Operand = T>
class GemmTile {
 public:
  MSCCLPP_INLINE GemmTile(const GridType& grid, std::byte* shared)
      : block_(grid.block()), warp_(grid.warp()), warpIndex_(grid.warpIndex()), shared_(shared) {}

  /// Computes the tile whose element (0, 0) is element (row, column) of the product; input and weight have the same
  /// number of columns. What lies outside of the matrices counts as 0. Called by all threads.
  MSCCLPP_INLINE void multiply(const Matrix<const Operand>& input, std::size_t row, const Matrix<const Operand>& weight,
                               std::size_t column) {
    MSCCLPP_UNROLL
    for (auto& fragments : sums_) {
      MSCCLPP_UNROLL
      for (auto& fragment : fragments) {
        MSCCLPP_UNROLL
        for (float& sum : fragment) sum = 0.0f;
      }
    }
    const TileOperand<Operand, shape, shape.rows> a(input, row, block_.rank());
    const TileOperand<Operand, shape, shape.columns> b(weight, column, block_.rank());
    const auto steps = static_cast<int>((input.columns + shape.depth - 1) / shape.depth);
    if (steps == 0) return;
    const auto load = [&](int step, std::byte* to) {
      if (step < steps) {
        a.load(step, to);
        b.load(step, to + Layout::bytes(shape.rows));
      }
      arch::copyAsyncCommit();  // an empty group at the end keeps the count of groups
    };
    MSCCLPP_UNROLL
    for (int step = 0; step < shape.stages; ++step) load(step, shared_ + step * stageBytes);
    arch::copyAsyncWait<shape.stages - 1>();
    block_.sync();
    std::byte* stage = shared_;
    Fragments current, next;
    loadFragments(current, stage, 0);
    MSCCLPP_NO_UNROLL
    for (int step = 0; step < steps; ++step) {
      MSCCLPP_UNROLL
      for (int k = 0; k < warpChunks; k += 2) {
        // What is multiplied next is loaded meanwhile.
        if (k + 2 < warpChunks) {
          loadFragments(next, stage, k + 2);
        } else {
          arch::copyAsyncWait<shape.stages - 2>();
          block_.sync();  // the operands of the next step are complete, and those of this one in registers
          std::byte* const free = stage;
          stage = stage == shared_ + (shape.stages - 1) * stageBytes ? shared_ : stage + stageBytes;
          if (step + 1 < steps) loadFragments(next, stage, 0);
          load(step + shape.stages, free);
        }
        multiplyFragments(current);
        current = next;
      }
    }
  }

  /// Applies op to the tile (fusion/gemm/pair_op.hpp) and calls f(row, column, pack) for each pack of its result, row
  /// and column counted from the tile's first. width: columns of the product; results of columns beyond it are 0. By
  /// way of shared memory, so that a warp holds whole parts of rows, which travel best. Called by all threads, with the
  /// row and column of multiply().
  template <class PairOp, class F>
  MSCCLPP_INLINE void forEachPack(std::size_t row, std::size_t column, std::size_t width, const PairOp& op,
                                  const F& f) {
    storeResult(row, column, width, op);
    for (int i = block_.rank(); i < resultPacks<PairOp>; i += block_.size()) {
      const ResultPlace at = placeOf<PairOp>(i);
      f(at.row, at.column, loadResult<PairOp>(at));
    }
    block_.sync();
  }

  /// Where a pack of the result is in the tile.
  struct ResultPlace {
    std::size_t row;
    std::size_t column;
  };
  /// Packs of the result of a tile, row by row, and the most of a thread.
  template <class PairOp>
  static constexpr int resultPacks = shape.rows*(shape.columns / 2 * PairOp::outputs) / packSize<T>;
  template <class PairOp>
  static constexpr int packsPerThread = (resultPacks<PairOp> + shape.warps() * 32 - 1) / (shape.warps() * 32);
  template <class PairOp>
  static MSCCLPP_INLINE ResultPlace placeOf(int pack) {
    constexpr int perRow = shape.columns / 2 * PairOp::outputs / packSize<T>;
    return {static_cast<std::size_t>(pack / perRow), static_cast<std::size_t>(pack % perRow * packSize<T>)};
  }
  /// The same with the packs in registers: word i of thread t is pack t + i * (threads of the block), if there is one.
  template <class PairOp>
  MSCCLPP_INLINE void takePacks(std::size_t row, std::size_t column, std::size_t width, const PairOp& op,
                                Word128 (&words)[packsPerThread<PairOp>]) {
    storeResult(row, column, width, op);
    MSCCLPP_UNROLL
    for (int i = 0; i < packsPerThread<PairOp>; ++i) {
      const int pack = block_.rank() + i * threads;
      words[i] = pack < resultPacks<PairOp> ? toWord<T>(loadResult<PairOp>(placeOf<PairOp>(pack))) : Word128{0, 0};
    }
    block_.sync();
  }

 private:
  static_assert(sizeof(T) == 2 && hasElementKind<T> && hasElementKind<Operand>,
                "matrix products are bf16 or f16, of bf16, f16 or f8e4m3");
  static_assert(shape.warpDepths >= 1 &&
                    shape.depth % (arch::multiplyAddDepth<elementKind<Operand>> * shape.warpDepths) == 0,
                "a warp multiplies a multiple of 32 bytes of the depth");
  static_assert(shape.stages >= 2, "a step is loaded while another is computed");
  static_assert(shape.rows % (16 * shape.warpRows) == 0 && shape.columns % (16 * shape.warpColumns) == 0,
                "a warp computes a multiple of 16 rows and of 16 columns");

  using Layout = StepLayout<Operand, shape>;
  static constexpr int threads = shape.warps() * 32;
  static constexpr int warpChunks = Layout::chunks / shape.warpDepths;
  static constexpr int partWarps = shape.warpRows * shape.warpColumns;
  static constexpr int rowFragments = shape.rows / shape.warpRows / 16;
  static constexpr int columnFragments = shape.columns / shape.warpColumns / 8;
  static constexpr int stageBytes = Layout::bytes(shape.rows + shape.columns);

  MSCCLPP_INLINE int depthPart() const { return shape.warpDepths == 1 ? 0 : warpIndex_ / partWarps; }
  MSCCLPP_INLINE int firstRow() const { return warpIndex_ % partWarps / shape.warpColumns * rowFragments * 16; }
  MSCCLPP_INLINE int firstColumn() const { return warpIndex_ % shape.warpColumns * columnFragments * 8; }

  /// What a lane multiplies at once: of 32 bytes of each of the warp's rows and columns.
  struct Fragments {
    std::uint32_t a[rowFragments][4];
    std::uint32_t b[columnFragments / 2][4];  ///< of two fragments each
  };

  /// Loads the fragments from pack k on of the warp's part of the operands in a stage.
  MSCCLPP_INLINE void loadFragments(Fragments& fragments, const std::byte* stage, int k) const {
    const std::byte* const weight = stage + Layout::bytes(shape.rows);
    k += depthPart() * warpChunks;
    MSCCLPP_UNROLL
    for (int i = 0; i < rowFragments; ++i) {
      arch::loadMatrices(warp_, fragments.a[i], [&](int lane) {
        return stage + Layout::packOffset(firstRow() + i * 16 + lane % 16, k + lane / 16);
      });
    }
    MSCCLPP_UNROLL
    for (int j = 0; j < columnFragments / 2; ++j) {
      arch::loadMatrices(warp_, fragments.b[j], [&](int lane) {
        return weight + Layout::packOffset(firstColumn() + j * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2);
      });
    }
  }
  /// Adds their product.
  MSCCLPP_INLINE void multiplyFragments(const Fragments& fragments) {
    MSCCLPP_UNROLL
    for (int i = 0; i < rowFragments; ++i) {
      MSCCLPP_UNROLL
      for (int j = 0; j < columnFragments; ++j) {
        const std::uint32_t column[2] = {fragments.b[j / 2][j % 2 * 2], fragments.b[j / 2][j % 2 * 2 + 1]};
        arch::multiplyAdd<elementKind<Operand>>(warp_, sums_[i][j], fragments.a[i], column);
      }
    }
  }

  template <class PairOp>
  static constexpr std::size_t pitchOf = GemmShape::resultPitch(shape.columns / 2 * PairOp::outputs);

  /// Applies op to the tile, and stores its result in shared memory. Called by all threads, and synchronises them.
  template <class PairOp>
  MSCCLPP_INLINE void storeResult(std::size_t row, std::size_t column, std::size_t width, const PairOp& op) {
    constexpr int outputs = PairOp::outputs;
    static_assert(outputs == 1 || outputs == 2);
    T* const result = reinterpret_cast<T*>(shared_ + shape.partialBytes());
    if constexpr (shape.warpDepths > 1) addPartialSums();
    const int g = warp_.rank() / 4;
    const int t = warp_.rank() % 4;
    MSCCLPP_UNROLL
    for (int i = 0; i < rowFragments; ++i) {
      if (depthPart() > 0) break;  // has given its sums away
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
          T* const to = result + static_cast<std::size_t>(r) * pitchOf<PairOp> + c / 2 * outputs;
          if constexpr (outputs == 2) {
            arch::storePlain(to, arch::bitCast<std::uint32_t>(values));
          } else {
            *to = values[0];
          }
        }
      }
    }
    block_.sync();
  }
  template <class PairOp>
  MSCCLPP_INLINE Pack<T> loadResult(const ResultPlace& at) const {
    const T* const result = reinterpret_cast<const T*>(shared_ + shape.partialBytes());
    return fromWord<T>(arch::loadWide(result + at.row * pitchOf<PairOp> + at.column));
  }

  /// Adds the sums of all parts of the depth, in the warps of the first one. Called by all threads, which no longer use
  /// the operands.
  MSCCLPP_INLINE void addPartialSums() {
    constexpr int lanes = partWarps * 32;
    float* const partial = reinterpret_cast<float*>(shared_) + block_.rank() % lanes;  // of a lane; the next one beside
    const int part = depthPart();
    const auto forEachSum = [&](const auto& f) {
      int index = 0;
      MSCCLPP_UNROLL
      for (auto& fragments : sums_) {
        MSCCLPP_UNROLL
        for (auto& fragment : fragments) {
          MSCCLPP_UNROLL
          for (float& sum : fragment) f(index++ * lanes, sum);
        }
      }
    };
    constexpr int partSums = shape.rows * shape.columns;
    if (part > 0) {
      forEachSum([&](int offset, const float& sum) { partial[(part - 1) * partSums + offset] = sum; });
    }
    block_.sync();
    if (part > 0) return;
    MSCCLPP_NO_UNROLL
    for (int other = 1; other < shape.warpDepths; ++other) {
      forEachSum([&](int offset, float& sum) { sum += partial[(other - 1) * partSums + offset]; });
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
