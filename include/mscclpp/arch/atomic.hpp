// Atomic read-modify-write operations and reductions on 4- and 8-byte integers.
//
// Every call states its memory order and scope. Each is made by one thread. On a GPU the address is in global memory
// (device, peer or mapped host memory).
#pragma once

#include "mscclpp/arch/order.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if defined(__CUDA_ARCH__)
namespace ptx {

// One row per memory order and scope: add, exchange and compare-and-swap, which return the old value (PTX atom).
#define MSCCLPP_ARCH_ATOMIC(suffix, text)                                                                           \
  MSCCLPP_DEVICE __forceinline__ std::uint32_t add##suffix(std::uint32_t* a, std::uint32_t v) {                     \
    std::uint32_t old;                                                                                              \
    asm volatile("atom." text ".global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(a), "r"(v) : "memory");             \
    return old;                                                                                                     \
  }                                                                                                                 \
  MSCCLPP_DEVICE __forceinline__ std::uint64_t add##suffix(std::uint64_t* a, std::uint64_t v) {                     \
    std::uint64_t old;                                                                                              \
    asm volatile("atom." text ".global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");             \
    return old;                                                                                                     \
  }                                                                                                                 \
  MSCCLPP_DEVICE __forceinline__ std::uint32_t swap##suffix(std::uint32_t* a, std::uint32_t v) {                    \
    std::uint32_t old;                                                                                              \
    asm volatile("atom." text ".global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(a), "r"(v) : "memory");            \
    return old;                                                                                                     \
  }                                                                                                                 \
  MSCCLPP_DEVICE __forceinline__ std::uint64_t swap##suffix(std::uint64_t* a, std::uint64_t v) {                    \
    std::uint64_t old;                                                                                              \
    asm volatile("atom." text ".global.exch.b64 %0, [%1], %2;" : "=l"(old) : "l"(a), "l"(v) : "memory");            \
    return old;                                                                                                     \
  }                                                                                                                 \
  MSCCLPP_DEVICE __forceinline__ std::uint32_t cas##suffix(std::uint32_t* a, std::uint32_t c, std::uint32_t v) {    \
    std::uint32_t old;                                                                                              \
    asm volatile("atom." text ".global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(a), "r"(c), "r"(v) : "memory"); \
    return old;                                                                                                     \
  }                                                                                                                 \
  MSCCLPP_DEVICE __forceinline__ std::uint64_t cas##suffix(std::uint64_t* a, std::uint64_t c, std::uint64_t v) {    \
    std::uint64_t old;                                                                                              \
    asm volatile("atom." text ".global.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(a), "l"(c), "l"(v) : "memory"); \
    return old;                                                                                                     \
  }
MSCCLPP_ARCH_ATOMIC(RelaxedDevice, "relaxed.gpu")
MSCCLPP_ARCH_ATOMIC(RelaxedSystem, "relaxed.sys")
MSCCLPP_ARCH_ATOMIC(AcquireDevice, "acquire.gpu")
MSCCLPP_ARCH_ATOMIC(AcquireSystem, "acquire.sys")
MSCCLPP_ARCH_ATOMIC(ReleaseDevice, "release.gpu")
MSCCLPP_ARCH_ATOMIC(ReleaseSystem, "release.sys")
MSCCLPP_ARCH_ATOMIC(AcqRelDevice, "acq_rel.gpu")
MSCCLPP_ARCH_ATOMIC(AcqRelSystem, "acq_rel.sys")
#undef MSCCLPP_ARCH_ATOMIC

// The same for additions without a result (PTX red).
#define MSCCLPP_ARCH_REDUCE(suffix, text)                                                 \
  MSCCLPP_DEVICE __forceinline__ void reduce##suffix(std::uint32_t* a, std::uint32_t v) { \
    asm volatile("red." text ".global.add.u32 [%0], %1;" ::"l"(a), "r"(v) : "memory");    \
  }                                                                                       \
  MSCCLPP_DEVICE __forceinline__ void reduce##suffix(std::uint64_t* a, std::uint64_t v) { \
    asm volatile("red." text ".global.add.u64 [%0], %1;" ::"l"(a), "l"(v) : "memory");    \
  }
MSCCLPP_ARCH_REDUCE(RelaxedDevice, "relaxed.gpu")
MSCCLPP_ARCH_REDUCE(RelaxedSystem, "relaxed.sys")
MSCCLPP_ARCH_REDUCE(ReleaseDevice, "release.gpu")
MSCCLPP_ARCH_REDUCE(ReleaseSystem, "release.sys")
#undef MSCCLPP_ARCH_REDUCE

}  // namespace ptx

// Selects the function for an order and a scope.
#define MSCCLPP_ARCH_PICK(op, order, scope, ...)                                      \
  if constexpr (order == Order::Relaxed) {                                            \
    if constexpr (scope == Scope::Device) return ptx::op##RelaxedDevice(__VA_ARGS__); \
    return ptx::op##RelaxedSystem(__VA_ARGS__);                                       \
  } else if constexpr (order == Order::Acquire) {                                     \
    if constexpr (scope == Scope::Device) return ptx::op##AcquireDevice(__VA_ARGS__); \
    return ptx::op##AcquireSystem(__VA_ARGS__);                                       \
  } else if constexpr (order == Order::Release) {                                     \
    if constexpr (scope == Scope::Device) return ptx::op##ReleaseDevice(__VA_ARGS__); \
    return ptx::op##ReleaseSystem(__VA_ARGS__);                                       \
  } else {                                                                            \
    if constexpr (scope == Scope::Device) return ptx::op##AcqRelDevice(__VA_ARGS__);  \
    return ptx::op##AcqRelSystem(__VA_ARGS__);                                        \
  }
#else
constexpr int hostOrder(Order order) {
  return order == Order::Acquire   ? __ATOMIC_ACQUIRE
         : order == Order::Release ? __ATOMIC_RELEASE
         : order == Order::AcqRel  ? __ATOMIC_ACQ_REL
                                   : __ATOMIC_RELAXED;
}
#endif

/// Adds value to *address and returns the previous value. T is std::uint32_t or std::uint64_t.
template <Order order, Scope scope, class T>
MSCCLPP_INLINE T fetchAdd(T* address, T value) {
  static_assert(order != Order::Volatile, "an atomic operation is Relaxed, Acquire, Release or AcqRel");
#if defined(__CUDA_ARCH__)
  MSCCLPP_ARCH_PICK(add, order, scope, address, value)
#else
  return __atomic_fetch_add(address, value, hostOrder(order));
#endif
}

/// Stores value to *address and returns the previous value.
template <Order order, Scope scope, class T>
MSCCLPP_INLINE T exchange(T* address, T value) {
  static_assert(order != Order::Volatile, "an atomic operation is Relaxed, Acquire, Release or AcqRel");
#if defined(__CUDA_ARCH__)
  MSCCLPP_ARCH_PICK(swap, order, scope, address, value)
#else
  return __atomic_exchange_n(address, value, hostOrder(order));
#endif
}

/// Stores desired to *address if it holds expected. Returns the previous value, which equals expected on success.
template <Order order, Scope scope, class T>
MSCCLPP_INLINE T compareExchange(T* address, T expected, T desired) {
  static_assert(order != Order::Volatile, "an atomic operation is Relaxed, Acquire, Release or AcqRel");
#if defined(__CUDA_ARCH__)
  MSCCLPP_ARCH_PICK(cas, order, scope, address, expected, desired)
#else
  constexpr int failure = order == Order::Acquire || order == Order::AcqRel ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
  __atomic_compare_exchange_n(address, &expected, desired, false, hostOrder(order), failure);
  return expected;
#endif
}

/// Adds value to *address without returning anything: the cheapest way to signal a peer. Order: Relaxed or Release.
template <Order order, Scope scope, class T>
MSCCLPP_INLINE void reduceAdd(T* address, T value) {
  static_assert(order == Order::Relaxed || order == Order::Release,
                "a reduction has no result, so it is Relaxed or Release");
#if defined(__CUDA_ARCH__)
  if constexpr (order == Order::Relaxed) {
    if constexpr (scope == Scope::Device) return ptx::reduceRelaxedDevice(address, value);
    return ptx::reduceRelaxedSystem(address, value);
  } else {
    if constexpr (scope == Scope::Device) return ptx::reduceReleaseDevice(address, value);
    return ptx::reduceReleaseSystem(address, value);
  }
#else
  __atomic_fetch_add(address, value, hostOrder(order));
#endif
}

#if defined(__CUDA_ARCH__)
#undef MSCCLPP_ARCH_PICK
#endif

}  // namespace mscclpp::arch
