// Random matrices, the reference of a product over ranks in double precision, and the state of calls.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "mscclpp/arch/backoff.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"
#include "mscclpp/fusion/gemm/pair_op.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// One warp, in emulation too: its lanes are threads.
inline constexpr GemmShape smallTile{
    .rows = 16, .columns = 32, .depth = 16, .stages = 3, .warpRows = 1, .warpColumns = 1};

/// Four warps, which divide rows and columns: small in emulation, of a useful size on GPUs.
inline constexpr GemmShape sharedTile =
    Backend<32>::onGpu
        ? GemmShape{.rows = 128, .columns = 64, .warpColumns = 2}
        : GemmShape{.rows = 32, .columns = 32, .depth = 64, .stages = 2, .warpRows = 2, .warpColumns = 2};

/// Four warps, which divide columns and the depth of a step, as kernels for few rows do.
inline constexpr GemmShape depthTile =
    Backend<32>::onGpu
        ? GemmShape{.rows = 32, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2}
        : GemmShape{
              .rows = 16, .columns = 32, .depth = 64, .stages = 2, .warpRows = 1, .warpColumns = 2, .warpDepths = 2};

/// The same for operands of fp8: as many bytes in a step.
constexpr GemmShape ofFp8(const GemmShape& tile) {
  return tile.withDepth(2 * tile.depth);
}

/// A matrix on the host, of which column c is at data[r * pitch + c]; what is between the rows is poisoned.
template <class T>
struct HostMatrix {
  std::size_t rows, columns, pitch;
  std::vector<T> data;

  double at(std::size_t r, std::size_t c) const { return static_cast<double>(widen<T>(data[r * pitch + c])); }
};

/// Values in [-1, 1], normally distributed.
template <class T>
HostMatrix<T> randomMatrix(std::size_t rows, std::size_t columns, std::size_t pitch, unsigned seed) {
  HostMatrix<T> matrix{rows, columns, pitch, std::vector<T>(rows * pitch, narrow<T>(NAN))};
  std::mt19937 random(seed);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      matrix.data[r * pitch + c] = narrow<T>(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000.0f);
    }
  }
  return matrix;
}

/// The product of a rank and, for each element, the sum of the absolute values of its terms.
struct RankProduct {
  std::size_t columns;
  std::vector<double> values;
  std::vector<double> magnitudes;

  /// Adds rows of a times the transpose of b.
  template <class T>
  static RankProduct of(const HostMatrix<T>& a, const HostMatrix<T>& b) {
    RankProduct result{b.rows, std::vector<double>(a.rows * b.rows), std::vector<double>(a.rows * b.rows)};
    // Each element is converted once: host code for fp8 takes long.
    const auto rowsOf = [](const HostMatrix<T>& matrix) {
      std::vector<double> rows;
      for (std::size_t r = 0; r < matrix.rows; ++r) {
        for (std::size_t k = 0; k < matrix.columns; ++k) rows.push_back(matrix.at(r, k));
      }
      return rows;
    };
    const std::vector<double> rowsA = rowsOf(a), rowsB = rowsOf(b);
    for (std::size_t r = 0; r < a.rows; ++r) {
      for (std::size_t c = 0; c < b.rows; ++c) {
        const double* const left = rowsA.data() + r * a.columns;
        const double* const right = rowsB.data() + c * b.columns;
        double value = 0, magnitude = 0;
        for (std::size_t k = 0; k < a.columns; ++k) {
          value += left[k] * right[k];
          magnitude += std::fabs(left[k] * right[k]);
        }
        result.values[r * b.rows + c] = value;
        result.magnitudes[r * b.rows + c] = magnitude;
      }
    }
    return result;
  }
  /// Multiplies each element by the scales of its row and its column.
  void scale(const float* ofRows, const float* ofColumns) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double by = static_cast<double>(ofRows[i / columns]) * static_cast<double>(ofColumns[i % columns]);
      values[i] *= by;
      magnitudes[i] *= by;
    }
  }
};

template <class PairOp>
inline constexpr bool isScaling = false;
template <class T, class Then>
inline constexpr bool isScaling<ScalePairs<T, Then>> = true;

/// The operands of a product whose results are T: fp8 where they are scaled.
template <class T, class PairOp>
using OperandOf = std::conditional_t<isScaling<PairOp>, f8e4m3, T>;

/// Scales of rows of fp8, of which no two are alike.
inline std::vector<float> randomScales(std::size_t count, unsigned seed) {
  std::vector<float> scales;
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < count; ++i) scales.push_back(0.25f + static_cast<float>(random() % 100'000) / 1e5f);
  return scales;
}

/// Half the distance of neighbouring values near 1: a rounding changes x by at most |x| times this.
template <class T>
inline constexpr double roundingOf = sizeof(T) == 2 && std::is_same_v<T, f16> ? 1.0 / 2048 : 1.0 / 256;

/// The bound of the error of a sum of `terms` products in fp32 in any order, as a part of the sum of their magnitudes.
inline double fp32Bound(std::size_t terms) {
  return static_cast<double>(terms) / (1 << 23);
}

/// The same of an element of a product, with its scales if there are any. Tensor cores keep fewer bits of a sum of fp8
/// than fp32 has.
template <class Operand>
double productBound(std::size_t depth) {
  if (!std::is_same_v<Operand, f8e4m3>) return fp32Bound(depth + 2);
  return fp32Bound(depth + 5) + (Backend<32>::onGpu ? 1.0 / 2048 : 0);
}

/// Says which element of the output of a call is wrong.
inline std::string wrongElement(std::size_t call, int rank, std::size_t row, std::size_t column, double got,
                                double wanted) {
  return "call " + std::to_string(call) + ", rank " + std::to_string(rank) + ", row " + std::to_string(row) +
         ", column " + std::to_string(column) + ": " + std::to_string(got) + " instead of " + std::to_string(wanted);
}

/// Returns after so many nanoseconds: a rank that is late.
MSCCLPP_HOST_DEVICE inline void beLate(std::uint64_t nanoseconds) {
  const auto start = arch::nanoseconds();
  while (arch::nanoseconds() - start < nanoseconds) arch::backoff(200);
}

/// Sets the epoch words of each rank.
template <class Buffers>
void setEpochs(Buffers& epochs, int ranks, std::uint64_t first) {
  for (int rank = 0; rank < ranks; ++rank) epochs.write(rank, std::vector<std::uint64_t>(epochWords, first));
}

}  // namespace mscclpp::test
