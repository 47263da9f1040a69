// A word in shared memory through which warps of a block tell each other how far they are, or take items.
#pragma once

#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Stores to a word of shared memory; release, for the threads of the block: after what the thread wrote to memory, or
/// a group sync ordered before. Called by one thread.
MSCCLPP_INLINE void storeSharedRelease(std::uint32_t* word, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(ptx::sharedAddress(word)), "r"(value) : "memory");
#elif !defined(__CUDACC_RTC__)
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

/// Loads it; acquire. Called by one thread, or by several, each for itself.
MSCCLPP_INLINE std::uint32_t loadSharedAcquire(const std::uint32_t* word) {
#if defined(__CUDA_ARCH__)
  std::uint32_t value;
  asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(ptx::sharedAddress(word)) : "memory");
  return value;
#elif !defined(__CUDACC_RTC__)
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#else
  return 0;
#endif
}

/// Adds to it and returns what it was before; relaxed. Called by one thread.
MSCCLPP_INLINE std::uint32_t fetchAddShared(std::uint32_t* word, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  std::uint32_t old;
  asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(ptx::sharedAddress(word)), "r"(value)
               : "memory");
  return old;
#elif !defined(__CUDACC_RTC__)
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
#else
  return 0;
#endif
}

}  // namespace mscclpp::arch
