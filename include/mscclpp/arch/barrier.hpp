// Hardware barriers among the warps of a block. No-ops on a CPU, where only groups of one thread call them.
#pragma once

#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Waits for every thread of the block and orders their accesses to shared and global memory. Called by all of them.
MSCCLPP_INLINE void blockSync() {
#if defined(__CUDA_ARCH__)
  __syncthreads();
#endif
}

/// The same; returns whether `vote` is true in any thread.
MSCCLPP_INLINE bool blockSyncAny(bool vote) {
#if defined(__CUDA_ARCH__)
  return __syncthreads_or(vote) != 0;
#else
  return vote;
#endif
}

/// Waits until `threads` threads, a multiple of the warp size, have arrived at barrier `id`, and orders their memory
/// accesses. id: 1 to 15; blockSync() uses 0.
MSCCLPP_INLINE void namedBarrierSync([[maybe_unused]] int id, [[maybe_unused]] int threads) {
#if defined(__CUDA_ARCH__)
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

/// The same; returns whether `vote` is true in any of the threads.
MSCCLPP_INLINE bool namedBarrierSyncAny([[maybe_unused]] int id, [[maybe_unused]] int threads, bool vote) {
#if defined(__CUDA_ARCH__)
  unsigned any;
  asm volatile(
      "{\n.reg .pred vote;\n.reg .pred any;\n"
      "setp.ne.u32 vote, %3, 0;\n"
      "barrier.cta.red.or.pred any, %1, %2, vote;\n"
      "selp.u32 %0, 1, 0, any; }"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(vote ? 1u : 0u)
      : "memory");
  return any != 0;
#else
  return vote;
#endif
}

/// Arrives at barrier `id` without waiting. The threads that wait in namedBarrierSync() see what the caller wrote
/// before. threads: as for namedBarrierSync(), the arriving threads included.
MSCCLPP_INLINE void namedBarrierArrive([[maybe_unused]] int id, [[maybe_unused]] int threads) {
#if defined(__CUDA_ARCH__)
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

}  // namespace mscclpp::arch
