// A pause of a thread.
#pragma once

#include "mscclpp/config.hpp"

#if !defined(__CUDACC_RTC__)
#include <ctime>
#endif

namespace mscclpp::arch {

/// Lets the calling thread sleep for about so many nanoseconds, up to a million: on a GPU between none and twice as
/// many, on a CPU some microseconds more.
MSCCLPP_INLINE void sleepFor([[maybe_unused]] unsigned nanoseconds) {
#if defined(__CUDA_ARCH__)
  asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds) : "memory");
#elif !defined(__CUDACC_RTC__)
  const std::timespec sleepTime{0, static_cast<long>(nanoseconds)};
  ::nanosleep(&sleepTime, nullptr);
#endif
}

}  // namespace mscclpp::arch
