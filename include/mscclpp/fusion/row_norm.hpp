// RMSNorm of rows in registers, and its quantisation: what a thread does with its packs of a row.
#pragma once

#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/norm_pack.hpp"
#include "mscclpp/fusion/quantise.hpp"
#include "mscclpp/fusion/row_threads.hpp"

namespace mscclpp {

/// The RMSNorm of rows of `rowPacks` packs, of which a thread holds up to n.
template <class T, int n>
struct RowNorm {
  const RmsNormArrays<T>& arrays;
  const std::uint32_t rowPacks;

  /// Calls f(i, pack) for the packs of a row that the thread holds.
  template <class GridType, class F>
  MSCCLPP_INLINE void forEachPack(const RowThreads<n, GridType>& threads, const F& f) const {
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      if (const std::uint32_t pack = threads.pack(i); pack < rowPacks) f(i, pack);
    }
  }
  /// Loads the thread's weights, the same for all rows, ahead of the first row; where there are no registers for them,
  /// apply() loads them for each row.
  template <class GridType>
  MSCCLPP_INLINE void loadWeights(const RowThreads<n, GridType>& threads, Word128 (&weights)[n]) const {
    if constexpr (keepsWeights) {
      forEachPack(threads, [&](int i, std::uint32_t pack) { weights[i] = weightAt(pack); });
    }
  }
  /// Writes the outputs of a row whose new residual is h. weights: those of loadWeights(). Called by all threads of the
  /// block.
  template <Quantisation quantisation, class GridType>
  MSCCLPP_INLINE void apply(RowThreads<n, GridType>& threads, std::uint32_t row, bool isPresent, Word128 (&h)[n],
                            const Word128 (&weights)[n]) const {
    float squares[n] = {};
    if (isPresent) {
      forEachPack(threads, [&](int i, std::uint32_t pack) {
        if (arrays.newResidual != nullptr) arch::storeWide(arrays.newResidual + element(row, pack), h[i]);
        squares[i] = norm::addSquares<T>(squares[i], fromWord<T>(h[i]));
      });
    }
    const float meanSquare = threads.sum(squares) / static_cast<float>(rowPacks * packSize<T>);
    const float factor = norm::factor(meanSquare, arrays.epsilon);
    std::uint32_t largest[n] = {};
    if (isPresent) {
      forEachPack(threads, [&](int i, std::uint32_t pack) {
        const auto weight = fromWord<T>(keepsWeights ? weights[i] : weightAt(pack));
        const auto values = norm::normalise<T>(fromWord<T>(h[i]), factor, weight);
        largest[i] = quantise::largestMagnitude<T>(values);
        h[i] = toWord<T>(values);
        if (arrays.normalised != nullptr) arch::storeWide(arrays.normalised + element(row, pack), h[i]);
      });
    }
    if constexpr (quantisation != Quantisation::None) quantiseRow<quantisation>(threads, row, isPresent, h, largest);
  }

 private:
  /// Longer rows lack the registers.
  static constexpr bool keepsWeights = n <= 2;

  MSCCLPP_INLINE std::size_t hidden() const { return std::size_t{rowPacks} * packSize<T>; }
  MSCCLPP_INLINE std::size_t element(std::uint32_t row, std::uint32_t pack) const {
    return (std::size_t{row} * rowPacks + pack) * packSize<T>;
  }
  template <Quantisation quantisation, class GridType>
  MSCCLPP_INLINE void quantiseRow(RowThreads<n, GridType>& threads, std::uint32_t row, bool isPresent,
                                  const Word128 (&y)[n], const std::uint32_t (&largest)[n]) const {
    using Q = typename QuantisedType<quantisation>::Type;
    float scales[n];
    if constexpr (quantisation == Quantisation::Fp8Static) {
      for (float& scale : scales) scale = *arrays.scale;
    } else if constexpr (quantisation == Quantisation::Fp8PerGroup) {
      groupScales<quantisation>(threads, row, isPresent, largest, scales);
    } else {
      std::uint32_t most = 0;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) most = quantise::larger(most, largest[i]);
      const float scale = quantise::scaleFor(threads.max(most), QuantisedType<quantisation>::largest);
      for (float& each : scales) each = scale;
      if (isPresent && threads.rank() == 0) arrays.scales[row] = scale;
    }
    if (!isPresent) return;
    forEachPack(threads, [&](int i, std::uint32_t pack) {
      const auto rounded = quantise::round<Q, T>(fromWord<T>(y[i]), arch::reciprocal(scales[i]));
      arch::storePlain(static_cast<std::byte*>(arrays.quantised) + element(row, pack),
                       arch::bitCast<arch::WordFor<decltype(rounded)>>(rounded));
    });
  }
  /// The scale of the group of each pack, which lies in lanes next to each other.
  template <Quantisation quantisation, class GridType>
  MSCCLPP_INLINE void groupScales(const RowThreads<n, GridType>& threads, std::uint32_t row, bool isPresent,
                                  const std::uint32_t (&largest)[n], float (&scales)[n]) const {
    constexpr std::uint32_t groupPacks = quantisationGroup / packSize<T>;
    constexpr int width = RowThreads<n, GridType>::width;
    static_assert(width == 1 || width >= static_cast<int>(groupPacks),
                  "scales per group need warps of 32 lanes, or of one");
    const std::size_t rowGroups = scalesOfRow(hidden(), quantisation);
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      const std::uint32_t pack = threads.pack(i);
      std::uint32_t most = largest[i];
      if constexpr (width == 1) {
        const int first = i - i % static_cast<int>(groupPacks);
        for (int k = first; k < first + static_cast<int>(groupPacks) && k < n; ++k) {
          most = quantise::larger(most, largest[k]);
        }
      } else {
        most = maxOverLanes<static_cast<int>(groupPacks)>(threads.warp(), most);
      }
      scales[i] = quantise::scaleFor(most, QuantisedType<quantisation>::largest);
      if (isPresent && pack < rowPacks && pack % groupPacks == 0) {
        arrays.scales[row * rowGroups + pack / groupPacks] = scales[i];
      }
    }
  }

  MSCCLPP_INLINE Word128 weightAt(std::uint32_t pack) const {
    return arch::loadWide(arrays.weight + pack * static_cast<std::size_t>(packSize<T>));
  }
};

}  // namespace mscclpp
