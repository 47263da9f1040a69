// Hardware barriers among warps of one block. Host twins: nothing to wait for, since these are reached only by one-thread groups there.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Waits for every thread of the block and orders their accesses to shared and global memory.
MSCCLPP_INLINE void blockSync() {
#if defined(__CUDA_ARCH__)
  __syncthreads();
#endif
}

/// Waits for `threads` threads (whole warps) that name the same barrier. id: 1 to 15; 0 is blockSync's.
MSCCLPP_INLINE void namedBarrierSync([[maybe_unused]] int id, [[maybe_unused]] int threads) {
#if defined(__CUDA_ARCH__)
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

/// Counts the calling thread into a named barrier without waiting: others wait in namedBarrierSync. What the thread wrote before is visible to them.
MSCCLPP_INLINE void namedBarrierArrive([[maybe_unused]] int id, [[maybe_unused]] int threads) {
#if defined(__CUDA_ARCH__)
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

}  // namespace mscclpp::arch
