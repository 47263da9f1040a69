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

/// Copies `bytes` bytes between arrays that do not overlap. Called by one thread, which copies all of them.
MSCCLPP_INLINE void copyBytes(void* to, const void* from, std::size_t bytes) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  for (std::size_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace mscclpp::arch
