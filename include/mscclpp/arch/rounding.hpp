// Square root and rounding of floats, correctly rounded in both backends.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace mscclpp::arch {

/// The square root, rounded to nearest even.
MSCCLPP_INLINE float squareRoot(float value) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(value);
#elif !defined(__CUDACC_RTC__)
  return std::sqrt(value);
#else
  return value;
#endif
}

/// 1 / value, rounded to nearest even.
MSCCLPP_INLINE float reciprocal(float value) {
#if defined(__CUDA_ARCH__)
  return __frcp_rn(value);
#else
  return 1.0f / value;
#endif
}

/// The nearest integer, the even one of two, of a value that an int32 can hold; 0 for NaN.
MSCCLPP_INLINE std::int32_t roundToInt(float value) {
#if defined(__CUDA_ARCH__)
  return __float2int_rn(value);
#elif !defined(__CUDACC_RTC__)
  return value == value ? static_cast<std::int32_t>(std::lrint(value)) : 0;
#else
  return 0;
#endif
}

/// a * b + c, rounded once on a GPU, where an expression may be rounded once or twice as the compiler chooses.
MSCCLPP_INLINE float multiplyAdd(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace mscclpp::arch
