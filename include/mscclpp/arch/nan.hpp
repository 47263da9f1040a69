// One bit pattern for every NaN that arithmetic makes.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// value, or the one quiet NaN if it is a NaN. GPUs make no other in an addition or a multiplication. A CPU passes on the payload of an operand, of which
/// one the compiler decides anew in each place, so that ranks would differ in the bits.
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
