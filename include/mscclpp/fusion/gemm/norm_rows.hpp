// Residual and RMSNorm, and if wanted quantisation, of the reduced rows of a GEMM, between the reduction and its
// delivery.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"
#include "mscclpp/fusion/quantise.hpp"
#include "mscclpp/fusion/row_norm.hpp"

namespace mscclpp {

/// A row result (fusion/gemm/row_result.hpp) with the outputs and the roundings of AllReduceRmsNorm
/// (fusion/all_reduce_rms_norm.hpp): the residual is added to the rounded sum, and the norm is of the rounded rows. The
/// rank that reduces a row computes all, and delivers the new residual and the norm, which is in its quantised form if
/// there is one: its `normalised` is then not written. The sum of squares has an order that depends on the length of a
/// row and the width of a warp alone.
///
/// Columns are a multiple of 8, with a quantisation of 16. arrays.residual has the rows of this rank's output.
template <class T, Quantisation quantisation = Quantisation::None>
struct NormRows {
  static_assert(quantisation != Quantisation::Fp8PerGroup, "scales are per row, or one for all");
  static constexpr bool wholeRows = true;

  std::size_t columns;
  RmsNormArrays<T> arrays;

  static MSCCLPP_HOST_DEVICE std::size_t resultBytes(std::size_t columns) {
    return columns * sizeof(T) +
           (isQuantised ? roundUp(columns, sizeof(Word128)) + sizeof(Word128) : columns * sizeof(T));
  }
  MSCCLPP_INLINE bool accepts(std::size_t /*rows*/, std::size_t width) const {
    return width == columns && width % (isQuantised ? 2 * packSize<T> : packSize<T>) == 0 && arrays.isAligned();
  }

  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void transform(const Warp& warp, const RowPart& part, Packs& packs, const Output& write) const {
    float squares = 0.0f;
    packs.forEach([&](std::size_t column, Pack<T>& pack) {
      if (arrays.residual != nullptr) {
        const auto residual = fromWord<T>(arch::loadWide(arrays.residual + part.row * columns + column));
        MSCCLPP_UNROLL
        for (int i = 0; i < packSize<T>; ++i) pack[i] = narrow<T>(widen<T>(pack[i]) + widen<T>(residual[i]));
      }
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) {
        squares = arch::multiplyAdd(widen<T>(pack[i]), widen<T>(pack[i]), squares);
      }
      write(column * sizeof(T), toWord<T>(pack));
    });
    for (int distance = 1; distance < warp.size(); distance *= 2) {
      squares += arch::bitCast<float>(warp.shuffle(arch::bitCast<std::uint32_t>(squares), warp.rank() ^ distance));
    }
    const float mean = squares / static_cast<float>(columns);
    const float factor = arch::reciprocal(arch::squareRoot(mean + arrays.epsilon));
    std::uint32_t largest = 0;
    packs.forEach([&](std::size_t column, Pack<T>& pack) {
      const auto weight = fromWord<T>(arch::loadWide(arrays.weight + column));
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) {
        pack[i] = narrow<T>(arch::canonicalNan(widen<T>(pack[i]) * factor * widen<T>(weight[i])));
        largest = quantise::larger(largest, quantise::magnitude(widen<T>(pack[i])));
      }
      if constexpr (!isQuantised) write((columns + column) * sizeof(T), toWord<T>(pack));
    });
    if constexpr (isQuantised) quantise(warp, packs, largest, write);
  }

  MSCCLPP_INLINE void store(const RowPart& part, std::size_t byte, const Word128& word) const {
    const std::size_t rowBytes = columns * sizeof(T);
    const auto storeTo = [&](void* array, std::size_t bytesOfRow, std::size_t at) {
      if (array != nullptr) arch::storeWide(static_cast<std::byte*>(array) + part.row * bytesOfRow + at, word);
    };
    if (byte < rowBytes) {
      storeTo(arrays.newResidual, rowBytes, byte);
    } else if constexpr (!isQuantised) {
      storeTo(arrays.normalised, rowBytes, byte - rowBytes);
    } else if (byte < rowBytes + columns) {
      storeTo(arrays.quantised, columns, byte - rowBytes);
    } else if (arrays.scales != nullptr) {
      arrays.scales[part.row] = arch::bitCast<float>(static_cast<std::uint32_t>(word.lo));
    }
  }

 private:
  static constexpr bool isQuantised = quantisation != Quantisation::None;

  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void quantise(const Warp& warp, Packs& packs, std::uint32_t largest, const Output& write) const {
    using Q = typename QuantisedType<quantisation>::Type;
    float scale = 0.0f;
    if constexpr (quantisation == Quantisation::Fp8Static) {
      scale = *arrays.scale;
    } else {
      scale = quantise::scaleFor(maxOverLanes<Warp::width>(warp, largest), QuantisedType<quantisation>::largest);
    }
    const float inverse = arch::reciprocal(scale);
    const std::size_t rowBytes = columns * sizeof(T);
    packs.forEachInAllLanes([&](std::size_t column, Pack<T>& pack, bool isPresent) {
      Vector<Q, packSize<T>> rounded;
      MSCCLPP_UNROLL
      for (int i = 0; i < packSize<T>; ++i) rounded[i] = quantise::round<Q>(widen<T>(pack[i]) * inverse);
      // Two lanes have the bytes of a word.
      const auto own = arch::bitCast<std::uint64_t>(rounded);
      const auto next = [&](std::uint64_t bits) {
        return warp.shuffle(static_cast<std::uint32_t>(bits), warp.rank() ^ 1);
      };
      const std::uint64_t low = next(own);
      const std::uint64_t high = next(own >> 32);
      if (isPresent && warp.rank() % 2 == 0) write(rowBytes + column, Word128{own, low | high << 32});
    });
    if (quantisation != Quantisation::Fp8Static && warp.rank() == 0) {
      write(rowBytes + roundUp(columns, sizeof(Word128)), Word128{arch::bitCast<std::uint32_t>(scale), 0});
    }
  }
};

}  // namespace mscclpp
