// Residual and RMSNorm, and if wanted quantisation, of the reduced rows of a GEMM, between the reduction and its
// delivery.
#pragma once

#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"
#include "mscclpp/fusion/norm_pack.hpp"
#include "mscclpp/fusion/quantise.hpp"

namespace mscclpp {

/// A row result (fusion/gemm/row_result.hpp) with the outputs and the roundings of AllReduceRmsNorm
/// (fusion/all_reduce_rms_norm.hpp): the residual is added to the rounded sum, and the norm is of the rounded rows. The
/// rank that reduces a row computes all, and delivers the new residual and the norm, which is in its quantised form if
/// there is one: its `normalised` is then not written. The sum of squares has an order that depends on the length of a
/// row and the width of a warp alone.
///
/// The quantisation is known at run time, the same on all ranks; NormRows is for one that is known at compile time.
/// What is delivered has room for the longest result.
///
/// Columns are a multiple of 8, with a quantisation of 16. arrays.residual has the rows of this rank's output.
template <class T>
struct AnyNormRows {
  static constexpr bool wholeRows = true;

  std::size_t columns;
  Quantisation quantisation;
  RmsNormArrays<T> arrays;

  static MSCCLPP_HOST_DEVICE std::size_t resultBytes(std::size_t columns) {
    const std::size_t plain = resultBytes(columns, Quantisation::None);
    const std::size_t quantised = resultBytes(columns, Quantisation::Fp8PerGroup);
    return plain > quantised ? plain : quantised;
  }
  /// With this quantisation: the new residual; the norm, or its quantised form and a word for each scale.
  static MSCCLPP_HOST_DEVICE std::size_t resultBytes(std::size_t columns, Quantisation quantisation) {
    if (quantisation == Quantisation::None) return 2 * columns * sizeof(T);
    return columns * sizeof(T) + roundUp(columns, sizeof(Word128)) +
           scalesOfRow(columns, quantisation) * sizeof(Word128);
  }
  MSCCLPP_INLINE bool accepts(std::size_t /*rows*/, std::size_t width) const {
    return width == columns && width % (isQuantised() ? 2 * packSize<T> : packSize<T>) == 0 && arrays.isAligned();
  }

  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void transform(const Warp& warp, const RowPart& part, Packs& packs, const Output& write) const {
    float squares = 0.0f;
    packs.forEach([&](std::size_t column, Pack<T>& pack) {
      if (arrays.residual != nullptr) {
        const auto residual = fromWord<T>(arch::loadWide(arrays.residual + part.row * columns + column));
        pack = norm::addResidual<T>(pack, residual);
      }
      squares = norm::addSquares<T>(squares, pack);
      write(column * sizeof(T), toWord<T>(pack));
    });
    for (int distance = 1; distance < warp.size(); distance *= 2) {
      squares += arch::bitCast<float>(warp.shuffle(arch::bitCast<std::uint32_t>(squares), warp.rank() ^ distance));
    }
    const float factor = norm::factor(squares / static_cast<float>(columns), arrays.epsilon);
    std::uint32_t largest = 0;
    packs.forEach([&](std::size_t column, Pack<T>& pack) {
      pack = norm::normalise<T>(pack, factor, fromWord<T>(arch::loadWide(arrays.weight + column)));
      largest = quantise::larger(largest, quantise::largestMagnitude<T>(pack));
      if (!isQuantised()) write((columns + column) * sizeof(T), toWord<T>(pack));
    });
    if (isQuantised()) quantise(warp, packs, largest, write);
  }

  MSCCLPP_INLINE void store(const RowPart& part, std::size_t byte, const Word128& word) const {
    const std::size_t rowBytes = columns * sizeof(T);
    const auto storeTo = [&](void* array, std::size_t bytesOfRow, std::size_t at) {
      if (array != nullptr) arch::storeWide(static_cast<std::byte*>(array) + part.row * bytesOfRow + at, word);
    };
    if (byte < rowBytes) {
      storeTo(arrays.newResidual, rowBytes, byte);
    } else if (!isQuantised()) {
      if (byte < 2 * rowBytes) storeTo(arrays.normalised, rowBytes, byte - rowBytes);
    } else if (byte < rowBytes + columns) {
      storeTo(arrays.quantised, columns, byte - rowBytes);
    } else if (arrays.scales != nullptr) {
      const std::size_t scales = scalesOfRow(columns, quantisation), i = (byte - firstScale()) / sizeof(Word128);
      if (i < scales) arrays.scales[part.row * scales + i] = arch::bitCast<float>(static_cast<std::uint32_t>(word.lo));
    }
  }

 private:
  MSCCLPP_INLINE bool isQuantised() const { return quantisation != Quantisation::None; }
  /// The byte of the first scale in a result.
  MSCCLPP_INLINE std::size_t firstScale() const { return columns * sizeof(T) + roundUp(columns, sizeof(Word128)); }

  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void quantise(const Warp& warp, Packs& packs, std::uint32_t largest, const Output& write) const {
    constexpr int groupLanes = quantisationGroup / packSize<T>;
    const bool isInt = quantisation == Quantisation::Int8PerRow;
    const bool isPerGroup = quantisation == Quantisation::Fp8PerGroup;
    const std::size_t rowBytes = columns * sizeof(T), scalesAt = firstScale();
    const auto writeScale = [&](std::size_t i, float scale) {
      write(scalesAt + i * sizeof(Word128), Word128{arch::bitCast<std::uint32_t>(scale), 0});
    };
    float inverse = 0.0f;
    if (quantisation == Quantisation::Fp8Static) {
      inverse = arch::reciprocal(*arrays.scale);
    } else if (!isPerGroup) {
      const float most =
          isInt ? QuantisedType<Quantisation::Int8PerRow>::largest : QuantisedType<Quantisation::Fp8PerRow>::largest;
      const float scale = quantise::scaleFor(maxOverLanes<Warp::width>(warp, largest), most);
      inverse = arch::reciprocal(scale);
      if (warp.rank() == 0) writeScale(0, scale);
    }
    packs.forEachInAllLanes([&](std::size_t column, Pack<T>& pack, bool isPresent) {
      if (isPerGroup) {  // in lanes next to each other
        const std::uint32_t own = isPresent ? quantise::largestMagnitude<T>(pack) : 0;
        const float scale =
            quantise::scaleFor(maxOverLanes<groupLanes>(warp, own), QuantisedType<Quantisation::Fp8PerGroup>::largest);
        inverse = arch::reciprocal(scale);
        if (isPresent && warp.rank() % groupLanes == 0) writeScale(column / quantisationGroup, scale);
      }
      // Two lanes have the bytes of a word.
      const auto own = isInt ? arch::bitCast<std::uint64_t>(quantise::round<std::int8_t, T>(pack, inverse))
                             : arch::bitCast<std::uint64_t>(quantise::round<f8e4m3, T>(pack, inverse));
      const auto next = [&](std::uint64_t bits) {
        return warp.shuffle(static_cast<std::uint32_t>(bits), warp.rank() ^ 1);
      };
      const std::uint64_t low = next(own);
      const std::uint64_t high = next(own >> 32);
      if (isPresent && warp.rank() % 2 == 0) write(rowBytes + column, Word128{own, low | high << 32});
    });
  }
};

/// The same with a quantisation that is known at compile time.
template <class T, Quantisation quantisation = Quantisation::None>
struct NormRows {
  static constexpr bool wholeRows = true;

  std::size_t columns;
  RmsNormArrays<T> arrays;

  static MSCCLPP_HOST_DEVICE std::size_t resultBytes(std::size_t columns) {
    return AnyNormRows<T>::resultBytes(columns, quantisation);
  }
  MSCCLPP_INLINE bool accepts(std::size_t rows, std::size_t width) const { return any().accepts(rows, width); }
  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void transform(const Warp& warp, const RowPart& part, Packs& packs, const Output& write) const {
    any().transform(warp, part, packs, write);
  }
  MSCCLPP_INLINE void store(const RowPart& part, std::size_t byte, const Word128& word) const {
    any().store(part, byte, word);
  }

 private:
  MSCCLPP_INLINE AnyNormRows<T> any() const { return {columns, quantisation, arrays}; }
};

}  // namespace mscclpp
