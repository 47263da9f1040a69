// RMSNorm for one pack of a row: what is the same however threads hold rows.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// What follows the reduction. All arrays are in local memory at addresses that are multiples of 16; rows follow each
/// other without gaps. Plain data, passed by value.
template <class T>
struct RmsNormArrays {
  const T* weight;     ///< hidden elements
  float epsilon;       ///< is added to the mean of the squares
  const T* residual;   ///< rows x hidden, the same on all ranks; null: none
  T* newResidual;      ///< rows x hidden: the rounded sum and the residual; may be `residual`; null: not written
  T* normalised;       ///< rows x hidden; may be the array of the source; null: not written
  void* quantised;     ///< rows x hidden values of one byte; null with Quantisation::None
  float* scales;       ///< Fp8PerRow, Int8PerRow: one for each row. Fp8PerGroup: hidden / 128, rounded up, for each row
  const float* scale;  ///< Fp8Static: one

  /// Whether the addresses are as they have to be.
  MSCCLPP_INLINE bool isAligned() const {
    const auto bits = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address); };
    const std::uintptr_t all = bits(weight) | bits(residual) | bits(newResidual) | bits(normalised) | bits(quantised);
    return all % sizeof(Word128) == 0;
  }
};

/// Called by each thread with what it holds of a row. NaNs become the canonical one, so that all
/// ranks have the same bits.
namespace norm {

/// The sum and the residual, rounded.
template <class T>
MSCCLPP_INLINE Pack<T> addResidual(Pack<T> sum, const Pack<T>& residual) {
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) {
    sum[i] = narrow<T>(arch::canonicalNan(widen<T>(sum[i]) + widen<T>(residual[i])));
  }
  return sum;
}

/// `squares` and the squares of the elements, in their order.
template <class T>
MSCCLPP_INLINE float addSquares(float squares, const Pack<T>& pack) {
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) squares = arch::multiplyAdd(widen<T>(pack[i]), widen<T>(pack[i]), squares);
  return squares;
}

/// What the elements of a row are multiplied by. meanSquare: the mean of their squares.
MSCCLPP_INLINE float factor(float meanSquare, float epsilon) {
  return arch::reciprocal(arch::squareRoot(meanSquare + epsilon));
}

/// The elements times the factor of their row and their weights, rounded.
template <class T>
MSCCLPP_INLINE Pack<T> normalise(Pack<T> pack, float factor, const Pack<T>& weight) {
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) {
    pack[i] = narrow<T>(arch::canonicalNan(widen<T>(pack[i]) * factor * widen<T>(weight[i])));
  }
  return pack;
}

}  // namespace norm

}  // namespace mscclpp
