// Canonical NaN: every NaN that arithmetic produces gets one bit pattern, so that all ranks have the same bits.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Returns value, or the canonical quiet NaN if value is a NaN. GPU additions and multiplications produce no other NaN.
/// A CPU propagates the payload of one operand, and which one depends on the compiled code, so ranks could differ.
template <class A>
MSCCLPP_INLINE A canonicalNan(A value) {
#if !defined(__CUDA_ARCH__) && !defined(__CUDACC_RTC__)
  if constexpr (static_cast<A>(0.5) != A{0}) {
    if (value != value) return static_cast<A>(__builtin_nan(""));
  }
#endif
  return value;
}

}  // namespace mscclpp::arch
