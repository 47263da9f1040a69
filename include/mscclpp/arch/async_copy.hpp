// Asynchronous copies of 16 bytes from global to shared memory (PTX cp.async; sm_80 and newer).
//
// Ordinary accesses of the issuing thread, ordered as such. The CPU implementation copies as late as it may.
#pragma once

#include "mscclpp/arch/pending_stores.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Starts a copy of `bytes` bytes, 0 to 16; the rest of the 16 bytes in shared memory becomes 0. Both addresses are
/// aligned to 16 bytes. It belongs to the calling thread's open group of copies.
MSCCLPP_INLINE void copyAsync(void* shared, const void* global, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ptx::sharedAddress(shared)), "l"(global),
               "r"(bytes)
               : "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::copiesOfThisThread().add(shared, global, bytes,
                                                [](void* to, const void* from, std::uint32_t size) {
                                                  Word128 word{0, 0};
                                                  copyBytes(&word, from, size);
                                                  storeWide(to, word);
                                                });
#endif
}

/// Closes the calling thread's open group of copies, which may be empty.
MSCCLPP_INLINE void copyAsyncCommit() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::copiesOfThisThread().commit();
#endif
}

/// Waits until all but the last `Left` groups of the calling thread have completed and are visible to it; other threads
/// see them after a sync. It waits for hardware only, so it takes no wait policy.
template <int Left>
MSCCLPP_INLINE void copyAsyncWait() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
#elif !defined(__CUDACC_RTC__)
  host::PendingStores::copiesOfThisThread().performUntil(Left);
#endif
}

}  // namespace mscclpp::arch
