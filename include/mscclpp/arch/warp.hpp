// Instructions that the lanes of one hardware warp execute together. A CPU thread is a warp of one lane.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Lanes per warp: 32 on NVIDIA GPUs, 1 on a CPU.
#if defined(__CUDA_ARCH__)
inline constexpr int warpWidth = 32;
#else
inline constexpr int warpWidth = 1;
#endif

/// Waits for the lanes in mask and orders their memory accesses.
MSCCLPP_INLINE void warpSync([[maybe_unused]] std::uint32_t mask) {
#if defined(__CUDA_ARCH__)
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
#endif
}

/// Returns the value that lane `source` passed. width: lanes per tile, a power of two; source is an index in the
/// caller's tile.
MSCCLPP_INLINE std::uint32_t warpShuffle([[maybe_unused]] std::uint32_t mask, std::uint32_t value,
                                         [[maybe_unused]] int source, [[maybe_unused]] int width) {
#if defined(__CUDA_ARCH__)
  return __shfl_sync(mask, value, source, width);
#else
  return value;
#endif
}

/// A bit per lane of mask, set if predicate holds on that lane.
MSCCLPP_INLINE std::uint32_t warpBallot([[maybe_unused]] std::uint32_t mask, bool predicate) {
#if defined(__CUDA_ARCH__)
  return __ballot_sync(mask, predicate);
#else
  return predicate ? 1u : 0u;
#endif
}

/// The number of bits that are set, as in a ballot.
MSCCLPP_INLINE int countBits(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

/// Whether predicate holds on every lane of mask.
MSCCLPP_INLINE bool warpAll([[maybe_unused]] std::uint32_t mask, bool predicate) {
#if defined(__CUDA_ARCH__)
  return __all_sync(mask, predicate) != 0;
#else
  return predicate;
#endif
}

/// Whether predicate holds on any lane of mask.
MSCCLPP_INLINE bool warpAny([[maybe_unused]] std::uint32_t mask, bool predicate) {
#if defined(__CUDA_ARCH__)
  return __any_sync(mask, predicate) != 0;
#else
  return predicate;
#endif
}

}  // namespace mscclpp::arch
