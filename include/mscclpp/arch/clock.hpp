// Clocks of the executing thread.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if !defined(__CUDACC_RTC__)
#include <ctime>
#endif

namespace mscclpp::arch {

/// Nanoseconds of a monotonic clock. GPU: %globaltimer, which may advance in steps of a microsecond or more. CPU:
/// CLOCK_MONOTONIC.
MSCCLPP_INLINE std::uint64_t nanoseconds() {
#if defined(__CUDA_ARCH__)
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
#elif !defined(__CUDACC_RTC__)
  std::timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
#else
  return 0;
#endif
}

/// Clock cycles of the executing multiprocessor; nanoseconds on a CPU. Only differences within one thread are
/// meaningful.
MSCCLPP_INLINE std::uint64_t cycles() {
#if defined(__CUDA_ARCH__)
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
#else
  return nanoseconds();
#endif
}

/// Readings of both clocks.
struct ClockPair {
  std::uint64_t cycles;
  std::uint64_t nanoseconds;
};

/// Reads both clocks, one right after the other. On a CPU they are one clock, which is read once.
MSCCLPP_INLINE ClockPair clocks() {
#if defined(__CUDA_ARCH__)
  ClockPair now;
  asm volatile("mov.u64 %0, %%globaltimer; mov.u64 %1, %%clock64;" : "=l"(now.nanoseconds), "=l"(now.cycles)::"memory");
  return now;
#else
  const std::uint64_t now = nanoseconds();
  return {now, now};
#endif
}

}  // namespace mscclpp::arch
