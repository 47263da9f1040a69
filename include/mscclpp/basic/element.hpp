// Element types of collectives, their accumulator types, and conversions between the two.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

using f16 = __half;
using bf16 = __nv_bfloat16;
using f8e4m3 = __nv_fp8_e4m3;
using f8e5m2 = __nv_fp8_e5m2;

/// The type in which elements T are reduced: fp32 for 8- and 16-bit floating-point types, 32-bit integers for narrower
/// integers, T itself otherwise.
template <class T>
struct AccumulatorOf {
  using Type = T;
};
template <>
struct AccumulatorOf<f16> {
  using Type = float;
};
template <>
struct AccumulatorOf<bf16> {
  using Type = float;
};
template <>
struct AccumulatorOf<f8e4m3> {
  using Type = float;
};
template <>
struct AccumulatorOf<f8e5m2> {
  using Type = float;
};
template <>
struct AccumulatorOf<std::int8_t> {
  using Type = std::int32_t;
};
template <>
struct AccumulatorOf<std::uint8_t> {
  using Type = std::uint32_t;
};
template <>
struct AccumulatorOf<std::int16_t> {
  using Type = std::int32_t;
};
template <>
struct AccumulatorOf<std::uint16_t> {
  using Type = std::uint32_t;
};

template <class T>
using Accumulator = typename AccumulatorOf<T>::Type;

/// Converts an element to its accumulator type; exact.
template <class T>
MSCCLPP_INLINE Accumulator<T> widen(T value) {
  return static_cast<Accumulator<T>>(value);
}

/// Converts an accumulator to an element: rounded to nearest even for floating-point types (fp8 saturates to its
/// largest finite value), modulo 2^bits for integers.
template <class T>
MSCCLPP_INLINE T narrow(Accumulator<T> value) {
  return static_cast<T>(value);
}
template <>
MSCCLPP_INLINE f16 narrow<f16>(float value) {
  return __float2half_rn(value);
}
template <>
MSCCLPP_INLINE bf16 narrow<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/// bf16 is the upper half of a float, so a shift does it; the CUDA toolkit's host conversion is slower.
template <>
MSCCLPP_INLINE float widen<bf16>(bf16 value) {
  return arch::bitCast<float>(static_cast<std::uint32_t>(arch::bitCast<std::uint16_t>(value)) << 16);
}

}  // namespace mscclpp
