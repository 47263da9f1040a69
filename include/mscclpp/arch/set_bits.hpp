// Bits of a word that several threads of a block set.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Atomically sets bits of *word, a word of the calling block in shared or global memory. Relaxed, for the threads of
/// the block: a barrier of theirs comes between it and any plain access. Made by each thread.
MSCCLPP_INLINE void setBits(std::uint32_t* word, std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  asm volatile("red.relaxed.cta.or.b32 [%0], %1;" ::"l"(word), "r"(bits) : "memory");
#else
  __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
#endif
}

}  // namespace mscclpp::arch
