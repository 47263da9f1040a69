// Quantisation of values in registers to 8 bits: the scale of a set of values, and the rounding to fp8 e4m3 or int8.
#pragma once

#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The number of consecutive values that have one scale, where scales are per group.
inline constexpr int quantisationGroup = 128;

/// What a normalised row is quantised to, besides its elements' own type.
enum class Quantisation {
  None,
  Fp8Static,    ///< e4m3, with one scale for all rows, which the caller passes
  Fp8PerRow,    ///< e4m3, with a scale for each row
  Fp8PerGroup,  ///< e4m3, with a scale for each group of quantisationGroup values of a row; the last may be shorter
  Int8PerRow    ///< int8, symmetric, with a scale for each row
};

/// The scales of a row of so many columns: none without a quantisation, and with one scale for all rows.
MSCCLPP_HOST_DEVICE constexpr std::size_t scalesOfRow(std::size_t columns, Quantisation quantisation) {
  if (quantisation == Quantisation::Fp8PerGroup) {
    return ceilDivide(columns, static_cast<std::size_t>(quantisationGroup));
  }
  return quantisation == Quantisation::None || quantisation == Quantisation::Fp8Static ? 0 : 1;
}

/// The type of a quantised value, and the largest one.
template <Quantisation>
struct QuantisedType {
  using Type = f8e4m3;
  static constexpr float largest = 448.0f;
};
template <>
struct QuantisedType<Quantisation::Int8PerRow> {
  using Type = std::int8_t;
  static constexpr float largest = 127.0f;
};

namespace quantise {

/// The absolute value as bits: compared as integers, they are ordered as the values are, with infinity above all finite
/// values and NaN above infinity. So a maximum of them does not depend on the order.
MSCCLPP_INLINE std::uint32_t magnitude(float value) {
  return arch::bitCast<std::uint32_t>(value) & 0x7fffffffu;
}
MSCCLPP_INLINE std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  return a > b ? a : b;
}

/// The scale of values whose largest magnitude() is this: value = scale * quantised value. The canonical NaN if one of
/// the values is infinite or NaN, and never below the smallest normal float, so that its reciprocal is finite.
MSCCLPP_INLINE float scaleFor(std::uint32_t largestMagnitude, float largestQuantised) {
  constexpr float smallest = 1.17549435e-38f;
  constexpr std::uint32_t infinity = 0x7f800000u;
  if (largestMagnitude >= infinity) return arch::bitCast<float>(0x7fffffffu);
  const float scale = arch::bitCast<float>(largestMagnitude) / largestQuantised;
  return scale < smallest ? smallest : scale;
}

/// A value times the reciprocal of its scale, rounded to nearest even and limited to the range of Q. NaN: NaN as fp8, 0
/// as int8.
template <class Q>
MSCCLPP_INLINE Q round(float scaled) {
  if constexpr (detail::SameAs<Q, std::int8_t>) {
    const float limited = scaled > 127.0f ? 127.0f : scaled < -127.0f ? -127.0f : scaled;
    return static_cast<std::int8_t>(arch::roundToInt(limited));
  } else {
    return narrow<Q>(scaled);
  }
}

/// The largest magnitude() of the elements.
template <class T>
MSCCLPP_INLINE std::uint32_t largestMagnitude(const Pack<T>& pack) {
  std::uint32_t largest = 0;
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) largest = larger(largest, magnitude(widen<T>(pack[i])));
  return largest;
}

/// The elements times `inverse`, the reciprocal of their scale, as values of Q.
template <class Q, class T>
MSCCLPP_INLINE Vector<Q, packSize<T>> round(const Pack<T>& pack, float inverse) {
  Vector<Q, packSize<T>> values;
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) values[i] = round<Q>(widen<T>(pack[i]) * inverse);
  return values;
}

}  // namespace quantise

/// The maximum of a value over aligned sets of `lanes` lanes of a warp, a power of two, at most its width. Called by
/// all lanes; the same result in all lanes of a set.
template <int lanes, WarpGroup Warp>
MSCCLPP_INLINE std::uint32_t maxOverLanes(const Warp& warp, std::uint32_t value) {
  static_assert(lanes <= Warp::width, "a set of lanes is a part of a warp");
  MSCCLPP_UNROLL
  for (int distance = 1; distance < lanes; distance *= 2) {
    value = quantise::larger(value, warp.shuffle(value, warp.rank() ^ distance));
  }
  return value;
}

}  // namespace mscclpp
