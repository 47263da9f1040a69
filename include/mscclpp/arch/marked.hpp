// 16 bytes whose high half carries a mark: stored so that who sees the mark has all of them.
//
// A GPU stores and loads the 16 bytes whole. A CPU orders the two halves by release and acquire on the high one.
#pragma once

#include "mscclpp/arch/fence.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/order.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if defined(__CUDA_ARCH__)
namespace ptx {

// Unlike a fence before a relaxed store it leaves the first-level cache as it is.
MSCCLPP_DEVICE __forceinline__ void storeReleaseSystem(Word16* address, Word16 value) {
  asm volatile("{ .reg .b128 wide; mov.b128 wide, {%1, %2}; st.release.sys.global.b128 [%0], wide; }" ::"l"(address),
               "l"(value.lo), "l"(value.hi)
               : "memory");
}

}  // namespace ptx
#endif

/// Stores value to *address, for every GPU and CPU of the system to see. Release: what the calling thread wrote before, and what it knows of through a group
/// sync, comes first; Relaxed: nothing does (a CPU releases all the same: it costs nothing there).
template <Order order>
MSCCLPP_INLINE void storeMarked(Word16* address, Word16 value) {
  static_assert(order == Order::Relaxed || order == Order::Release, "a marked store is Relaxed or Release");
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

/// Loads *address: if the high half is that of a storeMarked, so is the low half, and its release is acquired.
MSCCLPP_INLINE Word16 loadMarked(const Word16* address) {
#if defined(__CUDA_ARCH__)
  const Word16 value = load<Order::Relaxed, Scope::System>(address);
  fence<Scope::System>();
  return value;
#else
  const std::uint64_t hi = __atomic_load_n(&address->hi, __ATOMIC_ACQUIRE);
  return {__atomic_load_n(&address->lo, __ATOMIC_RELAXED), hi};
#endif
}

}  // namespace mscclpp::arch
