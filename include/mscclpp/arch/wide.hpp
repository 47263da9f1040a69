// Plain (non-atomic) accesses to memory that no other thread accesses at the time, such as a user's input and output.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if !defined(__CUDACC_RTC__)
#include <cstring>
#endif

namespace mscclpp::arch {

/// Whether loadWide() and storeWide() require a 16-byte aligned address, as they do on GPUs.
#if defined(__CUDA_ARCH__)
inline constexpr bool wideNeedsAlignment = true;
#else
inline constexpr bool wideNeedsAlignment = false;
#endif

/// Loads or stores a Word at an address aligned to it, whatever the type of the object there.
template <class Word>
MSCCLPP_INLINE Word loadPlain(const void* address) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return *static_cast<const Word*>(address);
#else
  Word word;
  std::memcpy(&word, address, sizeof(word));
  return word;
#endif
}
template <class Word>
MSCCLPP_INLINE void storePlain(void* address, const Word& word) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  *static_cast<Word*>(address) = word;
#else
  std::memcpy(address, &word, sizeof(word));
#endif
}

/// Loads or stores 16 bytes.
MSCCLPP_INLINE Word128 loadWide(const void* address) {
#if defined(__CUDA_ARCH__)
  const ulonglong2 v = *static_cast<const ulonglong2*>(address);
  return {v.x, v.y};
#elif !defined(__CUDACC_RTC__)
  Word128 word;
  std::memcpy(&word, address, sizeof(word));
  return word;
#else
  return {};
#endif
}

MSCCLPP_INLINE void storeWide(void* address, Word128 word) {
#if defined(__CUDA_ARCH__)
  *static_cast<uint4*>(address) = uint4{static_cast<unsigned>(word.lo), static_cast<unsigned>(word.lo >> 32),
                                        static_cast<unsigned>(word.hi), static_cast<unsigned>(word.hi >> 32)};
#elif !defined(__CUDACC_RTC__)
  std::memcpy(address, &word, sizeof(word));
#endif
}

/// What createpolicy.fractional.L2 gives for evict_first and evict_normal (as in CUTLASS): the instruction takes longer
/// than an access.
MSCCLPP_INLINE std::uint64_t cachePolicy(bool streams) {
  return streams ? 0x12f0000000000000u : 0x1000000000000000u;
}
/// The same as loadWide(), but past the L1 cache, and storeWide(), with a hint to the L2 cache: it had better drop a
/// line that `streams` than others.
MSCCLPP_INLINE Word128 loadWide(const void* address, [[maybe_unused]] bool streams) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Word128 word;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.u64 {%0, %1}, [%2], %3;"
               : "=l"(word.lo), "=l"(word.hi)
               : "l"(address), "l"(cachePolicy(streams))
               : "memory");
  return word;
#else
  return loadWide(address);
#endif
}
MSCCLPP_INLINE void storeWide(void* address, Word128 word, [[maybe_unused]] bool streams) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("st.global.L2::cache_hint.v2.u64 [%0], {%1, %2}, %3;" ::"l"(address), "l"(word.lo), "l"(word.hi),
               "l"(cachePolicy(streams))
               : "memory");
#else
  storeWide(address, word);
#endif
}

/// Copies `bytes` bytes between arrays that do not overlap. Called by one thread, which copies all of them.
MSCCLPP_INLINE void copyBytes(void* to, const void* from, std::size_t bytes) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  for (std::size_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace mscclpp::arch
