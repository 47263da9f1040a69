// MSCCL++'s fp8 with a bias of 15: a sign, four bits of exponent, three of mantissa, neither infinity nor NaN.
// Implemented in software.
#pragma once

#include <cuda_fp16.h>

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/device.hpp"

/// Finite values from -1.875 to 1.875, in steps of 2^-17 around zero. A float is first rounded to fp16 (to nearest
/// even), then to the nearest value (ties away from zero). Larger values and NaN become the largest.
struct __fp8_e4m3b15 {
  std::uint8_t __x;

  __fp8_e4m3b15() = default;
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8_e4m3b15(float value) : __fp8_e4m3b15(__float2half_rn(value)) {}
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8_e4m3b15(__half value)
      : __x(encode(mscclpp::arch::bitCast<std::uint16_t>(value))) {}
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

  // fp16 has the same bias, one more bit of exponent and seven more of mantissa. Below 2 that exponent bit is 0, and
  // dropping the seven converts, also subnormal numbers.
  static MSCCLPP_HOST_DEVICE_INLINE std::uint8_t encode(std::uint32_t half) {
    constexpr std::uint32_t largest = 0x7fu << 7;
    constexpr std::uint32_t halfStep = 1u << 6;
    const std::uint32_t magnitude = half & 0x7fffu;
    const std::uint32_t clipped = magnitude < largest ? magnitude : largest;
    return static_cast<std::uint8_t>((half >> 8 & 0x80u) | (clipped + halfStep) >> 7);
  }
};
static_assert(sizeof(__fp8_e4m3b15) == 1);

/// Two of them in a word, the first in the low byte.
struct alignas(2) __fp8x2_e4m3b15 {
  std::uint16_t __x;

  __fp8x2_e4m3b15() = default;
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8x2_e4m3b15(std::uint16_t bits) : __x(bits) {}
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8x2_e4m3b15(const float2& values)
      : __x(static_cast<std::uint16_t>(__fp8_e4m3b15(values.x).__x | __fp8_e4m3b15(values.y).__x << 8)) {}
  MSCCLPP_HOST_DEVICE_INLINE operator float2() const {
    return {__fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(__x)),
            __fp8_e4m3b15::fromRaw(static_cast<std::uint8_t>(__x >> 8))};
  }
};

/// Four of them in a word, the first in the low byte.
struct alignas(4) __fp8x4_e4m3b15 {
  std::uint32_t __x;

  __fp8x4_e4m3b15() = default;
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8x4_e4m3b15(std::uint32_t bits) : __x(bits) {}
  explicit MSCCLPP_HOST_DEVICE_INLINE __fp8x4_e4m3b15(const float4& values)
      : __x(__fp8x2_e4m3b15(float2{values.x, values.y}).__x |
            static_cast<std::uint32_t>(__fp8x2_e4m3b15(float2{values.z, values.w}).__x) << 16) {}
  MSCCLPP_HOST_DEVICE_INLINE operator float4() const {
    const float2 low = __fp8x2_e4m3b15(static_cast<std::uint16_t>(__x));
    const float2 high = __fp8x2_e4m3b15(static_cast<std::uint16_t>(__x >> 16));
    return {low.x, low.y, high.x, high.y};
  }
};

namespace mscclpp {

template <>
struct AccumulatorOf<__fp8_e4m3b15> {
  using Type = float;
};

}  // namespace mscclpp
