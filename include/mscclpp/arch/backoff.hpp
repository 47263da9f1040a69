// What a thread does between two polls of a wait.
#pragma once

#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if !defined(__CUDACC_RTC__)
#include <sched.h>
#endif

namespace mscclpp::arch {

/// Failed attempts of a wait between two checks of its deadline and abort flag. Rare on a GPU: an attempt is a round
/// trip to L2 (about 0.5 us), a read of host memory takes twice that, and thousands of waiting threads must not
/// saturate the bus. Frequent on a CPU, where a thread yields its core between attempts, possibly for milliseconds.
#if defined(__CUDA_ARCH__)
inline constexpr unsigned attemptsPerDeadlineCheck = 16384;
#else
inline constexpr unsigned attemptsPerDeadlineCheck = 16;
#endif

/// Called by one thread after its attempt-th failed attempt, counted from 1. Does nothing on a GPU, whose scheduler
/// runs other warps meanwhile. On a CPU it spins for a few attempts, then yields the core, which the peer may need, and
/// finally sleeps 50 us.
MSCCLPP_INLINE void backoff([[maybe_unused]] unsigned attempt) {
#if !defined(__CUDA_ARCH__) && !defined(__CUDACC_RTC__)
  constexpr unsigned spins = 16;  // takes less time than to yield the core and get it back
  constexpr unsigned yields = 4096;
  if (attempt < spins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
  } else if (attempt < yields) {
    ::sched_yield();
  } else {
    sleepFor(50'000);
  }
#endif
}

}  // namespace mscclpp::arch
