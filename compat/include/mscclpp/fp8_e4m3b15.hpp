// MSCCL++'s fp8 with a bias of 15: a sign, four bits of exponent, three of mantissa, neither infinity nor NaN. In software.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/device.hpp"

/// Finite values from -1.875 to 1.875, in steps of 2^-17 around zero. Rounded to nearest even; what is larger becomes the largest, NaN as well.
struct __fp8_e4m3b15 {
  std::uint8_t __x;

  __fp8_e4m3b15() = default;
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8_e4m3b15(float value) : __x(encode(value)) {}
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8_e4m3b15(__half value) : __x(encode(__half2float(value))) {}
  /// Exact.
  MSCCLPP_HOST_DEVICE_INLINE operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(__x & 0x80u) << 24;
    const std::uint32_t exponent = __x >> 3 & 15u;
    const std::uint32_t mantissa = __x & 7u;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * smallest;
      return sign != 0 ? -magnitude : magnitude;
    }
    return mscclpp::arch::bitCast<float>(sign | (exponent + 127 - bias) << 23 | mantissa << 20);
  }

  static MSCCLPP_HOST_DEVICE_INLINE __fp8_e4m3b15 fromRaw(std::uint8_t bits) {
    __fp8_e4m3b15 result;
    result.__x = bits;
    return result;
  }

 private:
  static constexpr std::uint32_t bias = 15;
  static constexpr float smallest = 1.0f / 131072;  // 2^-17
  static constexpr float smallestNormal = 8 * smallest;
  static constexpr float largest = 1.875f;

  static MSCCLPP_HOST_DEVICE_INLINE std::uint8_t encode(float value) {
    const std::uint32_t bits = mscclpp::arch::bitCast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 24 & 0x80u;
    const float magnitude = mscclpp::arch::bitCast<float>(bits & 0x7fffffffu);
    if (!(magnitude < largest)) return static_cast<std::uint8_t>(sign | 0x7fu);
    if (magnitude < smallestNormal) {
      const float steps = magnitude / smallest;  // exact
      std::uint32_t mantissa = static_cast<std::uint32_t>(steps);
      const float rest = steps - static_cast<float>(mantissa);
      if (rest > 0.5f || (rest == 0.5f && mantissa % 2 != 0)) ++mantissa;
      return static_cast<std::uint8_t>(sign | mantissa);  // 8 steps are the smallest normal number, in bits too
    }
    const std::uint32_t whole = bits & 0x7fffffffu;
    const std::uint32_t rounded = whole + 0x7ffffu + (whole >> 20 & 1u);
    return static_cast<std::uint8_t>(sign | ((rounded >> 20) - ((127 - bias) << 3)));
  }
};
static_assert(sizeof(__fp8_e4m3b15) == 1);

namespace mscclpp {

template <>
struct AccumulatorOf<__fp8_e4m3b15> {
  using Type = float;
};

}  // namespace mscclpp
