// Binary floating-point formats of 8 and 16 bits, decoded and rounded in double: the reference for conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mscclpp/basic/element.hpp"

namespace mscclpp::test {

/// The result of rounding a value beyond the largest finite one.
enum class Overflow { Infinity, Saturate };

struct FloatFormat {
  int exponentBits;
  int mantissaBits;
  bool hasInfinity;  ///< false: the largest exponent is used for numbers too, and only all ones is NaN
  Overflow overflow;

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
  std::uint32_t signBit() const { return 1u << (exponentBits + mantissaBits); }
  std::uint32_t topExponent() const { return (1u << exponentBits) - 1; }

  double decode(std::uint32_t bits) const {
    const double sign = bits & signBit() ? -1 : 1;
    const std::uint32_t exponent = bits >> mantissaBits & topExponent();
    const std::uint32_t allOnes = (1u << mantissaBits) - 1;
    const std::uint32_t mantissa = bits & allOnes;
    if (exponent == topExponent() && hasInfinity) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    if (exponent == topExponent() && mantissa == allOnes) return std::numeric_limits<double>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias() - mantissaBits);
    return sign * std::ldexp(mantissa + allOnes + 1, static_cast<int>(exponent) - bias() - mantissaBits);
  }

  double largest() const {
    const std::uint32_t exponent = hasInfinity ? topExponent() - 1 : topExponent();
    const std::uint32_t mantissa = (1u << mantissaBits) - (hasInfinity ? 1 : 2);
    return decode(exponent << mantissaBits | mantissa);
  }

  /// The value rounded to nearest, ties to even.
  double round(double value) const {
    if (std::isnan(value) || value == 0) return value;
    const double overflowValue = overflow == Overflow::Saturate ? largest() : std::numeric_limits<double>::infinity();
    if (std::isinf(value)) return std::copysign(overflowValue, value);
    int exponent = 0;
    std::frexp(value, &exponent);
    const int lowest = 1 - bias();
    const int ulp = (exponent - 1 < lowest ? lowest : exponent - 1) - mantissaBits;
    const double rounded = std::copysign(std::ldexp(std::nearbyint(std::ldexp(value, -ulp)), ulp), value);
    return std::abs(rounded) <= largest() ? rounded : std::copysign(overflowValue, value);
  }
};

template <class T>
FloatFormat formatOf();
template <>
inline FloatFormat formatOf<f16>() {
  return {5, 10, true, Overflow::Infinity};
}
template <>
inline FloatFormat formatOf<bf16>() {
  return {8, 7, true, Overflow::Infinity};
}
template <>
inline FloatFormat formatOf<f8e4m3>() {
  return {4, 3, false, Overflow::Saturate};
}
template <>
inline FloatFormat formatOf<f8e5m2>() {
  return {5, 2, true, Overflow::Saturate};
}

template <class T>
inline constexpr bool isSmallFloat =
    std::is_same_v<T, f16> || std::is_same_v<T, bf16> || std::is_same_v<T, f8e4m3> || std::is_same_v<T, f8e5m2>;

/// The value of an element.
template <class T>
double decode(const T& element) {
  if constexpr (isSmallFloat<T>) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &element, sizeof(T));
    return formatOf<T>().decode(bits);
  } else {
    return static_cast<double>(element);
  }
}

/// Whether the values are the same; all NaNs are, zeros of different sign are not.
inline bool sameValue(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

}  // namespace mscclpp::test
