// What a thread does between two attempts of a wait.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if !defined(__CUDACC_RTC__)
#include <sched.h>

#include <ctime>
#endif

namespace mscclpp::arch {

/// How many failed attempts make a wait look at the clock: rarely on a GPU, where an attempt costs a trip to L2 (~0.5 us), a look at host memory twice
/// that, and thousands of waiting threads must not crowd the bus; often on a CPU, where a late attempt has yielded its core anyway,
/// for milliseconds if others want it.
#if defined(__CUDA_ARCH__)
inline constexpr unsigned attemptsPerDeadlineCheck = 16384;
#else
inline constexpr unsigned attemptsPerDeadlineCheck = 16;
#endif

/// Called after the attempt-th failure (from 1). A GPU polls on: its warp scheduler runs others meanwhile. A CPU spins a little, then gives its core
/// away, since the peer it waits for may need that very core, and after long failure sleeps.
MSCCLPP_INLINE void pauseAfterFailure([[maybe_unused]] unsigned attempt) {
#if !defined(__CUDA_ARCH__) && !defined(__CUDACC_RTC__)
  constexpr unsigned spins = 16;  // less than it costs to give the core away and get it back
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
    const std::timespec nap{0, 50'000};
    ::nanosleep(&nap, nullptr);
  }
#endif
}

}  // namespace mscclpp::arch
