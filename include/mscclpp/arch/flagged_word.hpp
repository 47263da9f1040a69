// A 16-byte word whose high half carries a flag: a reader that sees the flag has all 16 bytes.
//
// On a GPU the accesses are single-copy atomic. On a CPU, release and acquire on the high half order the two halves.
#pragma once

#include "mscclpp/arch/fence.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/order.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if defined(__CUDA_ARCH__)
namespace ptx {

// Unlike a fence before a relaxed store, a release store does not invalidate the L1 cache.
MSCCLPP_DEVICE __forceinline__ void storeReleaseSystem(Word128* address, Word128 value) {
  asm volatile("{ .reg .b128 wide; mov.b128 wide, {%1, %2}; st.release.sys.global.b128 [%0], wide; }" ::"l"(address),
               "l"(value.lo), "l"(value.hi)
               : "memory");
}

}  // namespace ptx
#endif

/// Stores value to *address at system scope. Called by one thread. Release: after everything that the thread wrote, or
/// that a group sync ordered before this call. Relaxed: unordered (a CPU releases all the same, at no cost).
template <Order order>
MSCCLPP_INLINE void storeFlagged(Word128* address, Word128 value) {
  static_assert(order == Order::Relaxed || order == Order::Release, "a flagged store is Relaxed or Release");
#if defined(__CUDA_ARCH__)
  if constexpr (order == Order::Release) {
    ptx::storeReleaseSystem(address, value);
  } else {
    store<Order::Relaxed, Scope::System>(address, value);
  }
#else
  __atomic_store_n(&address->lo, value.lo, __ATOMIC_RELAXED);
  __atomic_store_n(&address->hi, value.hi, __ATOMIC_RELEASE);
#endif
}

/// Loads *address at system scope; acquire. If the high half was written by a storeFlagged(), the low half is that of
/// the same store. Called by one thread.
MSCCLPP_INLINE Word128 loadFlagged(const Word128* address) {
#if defined(__CUDA_ARCH__)
  const Word128 value = load<Order::Relaxed, Scope::System>(address);
  fence<Scope::System>();
  return value;
#else
  const std::uint64_t hi = __atomic_load_n(&address->hi, __ATOMIC_ACQUIRE);
  return {__atomic_load_n(&address->lo, __ATOMIC_RELAXED), hi};
#endif
}

}  // namespace mscclpp::arch
