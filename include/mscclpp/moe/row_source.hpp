// Where dispatch gets the rows of tokens from: arrays that are sent as they are, with or without scales, or values that
// are quantised to fp8 on the way.
#pragma once

#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/quantise.hpp"
#include "mscclpp/moe/row_slots.hpp"

namespace mscclpp::moe {

/// Values of a row that have one scale, and the packs of fp8 values and the packs of scales that this makes.
inline constexpr int groupPacks = quantisationGroup / 16;
inline constexpr int stepGroups = stepPacks / groupPacks;
inline constexpr int stepScalePacks = stepGroups / 4;

// A source has `hasScales`, and load(warp, token, firstPack, packs, words, wanted, scales): all lanes of a warp load
// `packs` packs of a token's row, at most stepPacks, from firstPack on, a multiple of stepPacks. Lane l gets packs l,
// l + width, ... in words[0], words[1], ... If there are scales, the lane gets pack wanted[q] of the step's scales in
// scales[q], unless wanted[q] is out of [0, stepScalePacks). Scales are floats: value = scale * fp8 value.

// A source may have row(token), the address of a token's packs, for transports that copy rows.

/// Rows of 16-byte packs, sent as they are: bf16 or any other type.
struct RowArray {
  static constexpr bool hasScales = false;
  const std::byte* rows;   ///< [tokens], 16-byte aligned
  std::uint32_t rowPacks;  ///< packs of a row: RowSlots::rowPacks
  bool streams = false;    ///< the L2 cache does not hold the rows of a call: it had better keep others

  MSCCLPP_INLINE const std::byte* row(std::uint32_t token) const {
    return rows + std::size_t{token} * rowPacks * sizeof(Word128);
  }
  template <class Warp, int n, int extras>
  MSCCLPP_INLINE void load(const Warp& warp, std::uint32_t token, std::uint32_t firstPack, std::uint32_t packs,
                           Word128 (&words)[n], const int (&)[extras], Word128 (&)[extras]) const {
    const std::byte* const from = row(token) + std::size_t{firstPack} * sizeof(Word128);
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      const auto pack = static_cast<std::uint32_t>(i * Warp::width + warp.rank());
      if (pack < packs) words[i] = arch::loadWide(from + pack * sizeof(Word128), streams);
    }
  }
};

/// Rows of fp8 values and their scales, one for each quantisationGroup values of a row; the last may be for fewer.
struct ScaledRowArray {
  static constexpr bool hasScales = true;
  RowArray values;
  const float* scales;  ///< [tokens][groups()]

  MSCCLPP_HOST_DEVICE std::uint32_t groups() const { return (values.rowPacks + groupPacks - 1) / groupPacks; }
  MSCCLPP_INLINE const std::byte* row(std::uint32_t token) const { return values.row(token); }

  template <class Warp, int n, int extras>
  MSCCLPP_INLINE void load(const Warp& warp, std::uint32_t token, std::uint32_t firstPack, std::uint32_t packs,
                           Word128 (&words)[n], const int (&wanted)[extras], Word128 (&scalePacks)[extras]) const {
    values.load(warp, token, firstPack, packs, words, wanted, scalePacks);
    const float* const row = scales + std::size_t{token} * groups();
    MSCCLPP_UNROLL
    for (int q = 0; q < extras; ++q) {
      if (wanted[q] < 0 || wanted[q] >= stepScalePacks) continue;
      const std::uint32_t first = firstPack / groupPacks + static_cast<std::uint32_t>(4 * wanted[q]);
      Pack<float> pack{};
      MSCCLPP_UNROLL
      for (int k = 0; k < 4; ++k) {
        const std::uint32_t group = first + static_cast<std::uint32_t>(k);
        pack[k] = group < groups() ? row[group] : 0.0f;
      }
      scalePacks[q] = toWord<float>(pack);
    }
  }
};

/// Rows of T (bf16, f16), which are quantised to fp8 e4m3 with a scale for each quantisationGroup values
/// (fusion/quantise.hpp). A group with an infinity or a NaN has the scale NaN. The error of a value is at most 1/28 of
/// the largest magnitude in its group, plus the rounding of fp32.
template <class T>
struct QuantisedRows {
  static_assert(sizeof(T) == 2, "rows of bf16 or f16 are quantised");
  static constexpr bool hasScales = true;
  const T* rows;           ///< [tokens][16 * rowPacks], 16-byte aligned
  std::uint32_t rowPacks;  ///< packs of fp8 values

  template <class Warp, int n, int extras>
  MSCCLPP_INLINE void load(const Warp& warp, std::uint32_t token, std::uint32_t firstPack, std::uint32_t packs,
                           Word128 (&words)[n], const int (&wanted)[extras], Word128 (&scalePacks)[extras]) const {
    constexpr int width = Warp::width;
    constexpr int lanes = width < groupPacks ? width : groupPacks;  // of a group in a pass over the warp
    constexpr int passes = groupPacks / lanes;                      // of a group
    constexpr float largest = 448.0f;
    Pack<T> halves[n][2];
    std::uint32_t scales[n];
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      const auto pack = static_cast<std::uint32_t>(i * width + warp.rank());
      halves[i][0] = halves[i][1] = fromWord<T>(Word128{0, 0});
      if (pack >= packs) continue;
      const T* const from = rows + (std::size_t{token} * rowPacks + firstPack + pack) * 16;
      halves[i][0] = fromWord<T>(arch::loadWide(from));
      halves[i][1] = fromWord<T>(arch::loadWide(from + 8));
    }
    MSCCLPP_UNROLL
    for (int first = 0; first < n; first += passes) {
      std::uint32_t most = 0;
      MSCCLPP_UNROLL
      for (int i = first; i < first + passes; ++i) {
        MSCCLPP_UNROLL
        for (const Pack<T>& half : halves[i]) most = quantise::larger(most, quantise::largestMagnitude<T>(half));
      }
      const float scale = quantise::scaleFor(maxOverLanes<lanes>(warp, most), largest);
      const float inverse = arch::reciprocal(scale);
      MSCCLPP_UNROLL
      for (int i = first; i < first + passes; ++i) {
        scales[i] = arch::bitCast<std::uint32_t>(scale);
        words[i] = {arch::bitCast<std::uint64_t>(quantise::round<f8e4m3, T>(halves[i][0], inverse)),
                    arch::bitCast<std::uint64_t>(quantise::round<f8e4m3, T>(halves[i][1], inverse))};
      }
    }
    MSCCLPP_UNROLL
    for (int q = 0; q < extras; ++q) {
      std::uint32_t four[4] = {};
      MSCCLPP_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int pack = (4 * wanted[q] + k) * groupPacks;  // the first of the group
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) {
          const std::uint32_t ofLane = warp.shuffle(scales[i], pack & (width - 1));
          if (pack >= i * width && pack < (i + 1) * width) four[k] = ofLane;
        }
      }
      scalePacks[q] = {static_cast<std::uint64_t>(four[1]) << 32 | four[0],
                       static_cast<std::uint64_t>(four[3]) << 32 | four[2]};
    }
  }
};

}  // namespace mscclpp::moe
