// Loads and stores of 4, 8 and 16 bytes with a stated order and scope: PTX on a GPU, the same C++ order on a CPU.
//
// On a GPU the address is in global memory (device, peer or mapped host memory), and a 16-byte access is single-copy
// atomic (PTX .b128). On a CPU it is two 8-byte accesses. So 8-byte accesses are atomic on both backends, 16-byte ones
// on GPUs only.
#pragma once

#include "mscclpp/arch/order.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if defined(__CUDA_ARCH__)
namespace ptx {

// One row per access, order and scope, with its PTX instructions.
#define MSCCLPP_ARCH_LOAD(name, text4, text8)                                       \
  MSCCLPP_DEVICE __forceinline__ std::uint32_t name(const std::uint32_t* address) { \
    std::uint32_t value;                                                            \
    asm volatile(text4 " %0, [%1];" : "=r"(value) : "l"(address) : "memory");       \
    return value;                                                                   \
  }                                                                                 \
  MSCCLPP_DEVICE __forceinline__ std::uint64_t name(const std::uint64_t* address) { \
    std::uint64_t value;                                                            \
    asm volatile(text8 " %0, [%1];" : "=l"(value) : "l"(address) : "memory");       \
    return value;                                                                   \
  }
MSCCLPP_ARCH_LOAD(loadVolatile, "ld.volatile.global.u32", "ld.volatile.global.u64")
MSCCLPP_ARCH_LOAD(loadRelaxedBlock, "ld.relaxed.cta.global.u32", "ld.relaxed.cta.global.u64")
MSCCLPP_ARCH_LOAD(loadRelaxedDevice, "ld.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u64")
MSCCLPP_ARCH_LOAD(loadRelaxedSystem, "ld.relaxed.sys.global.u32", "ld.relaxed.sys.global.u64")
MSCCLPP_ARCH_LOAD(loadAcquireDevice, "ld.acquire.gpu.global.u32", "ld.acquire.gpu.global.u64")
MSCCLPP_ARCH_LOAD(loadAcquireSystem, "ld.acquire.sys.global.u32", "ld.acquire.sys.global.u64")
#undef MSCCLPP_ARCH_LOAD

#define MSCCLPP_ARCH_STORE(name, text4, text8)                                            \
  MSCCLPP_DEVICE __forceinline__ void name(std::uint32_t* address, std::uint32_t value) { \
    asm volatile(text4 " [%0], %1;" ::"l"(address), "r"(value) : "memory");               \
  }                                                                                       \
  MSCCLPP_DEVICE __forceinline__ void name(std::uint64_t* address, std::uint64_t value) { \
    asm volatile(text8 " [%0], %1;" ::"l"(address), "l"(value) : "memory");               \
  }
MSCCLPP_ARCH_STORE(storeVolatile, "st.volatile.global.u32", "st.volatile.global.u64")
MSCCLPP_ARCH_STORE(storeRelaxedBlock, "st.relaxed.cta.global.u32", "st.relaxed.cta.global.u64")
MSCCLPP_ARCH_STORE(storeRelaxedDevice, "st.relaxed.gpu.global.u32", "st.relaxed.gpu.global.u64")
MSCCLPP_ARCH_STORE(storeRelaxedSystem, "st.relaxed.sys.global.u32", "st.relaxed.sys.global.u64")
MSCCLPP_ARCH_STORE(storeReleaseDevice, "st.release.gpu.global.u32", "st.release.gpu.global.u64")
MSCCLPP_ARCH_STORE(storeReleaseSystem, "st.release.sys.global.u32", "st.release.sys.global.u64")
#undef MSCCLPP_ARCH_STORE

// 16 bytes as one 128-bit scalar: single-copy atomic in the PTX memory model, which takes a .v4 vector for 4 accesses.
#define MSCCLPP_ARCH_WIDE(suffix, text)                                                                              \
  MSCCLPP_DEVICE __forceinline__ Word128 load##suffix(const Word128* address) {                                      \
    Word128 value;                                                                                                   \
    asm volatile("{ .reg .b128 wide; ld." text ".global.b128 wide, [%2]; mov.b128 {%0, %1}, wide; }"                 \
                 : "=l"(value.lo), "=l"(value.hi)                                                                    \
                 : "l"(address)                                                                                      \
                 : "memory");                                                                                        \
    return value;                                                                                                    \
  }                                                                                                                  \
  MSCCLPP_DEVICE __forceinline__ void store##suffix(Word128* address, Word128 value) {                               \
    asm volatile("{ .reg .b128 wide; mov.b128 wide, {%1, %2}; st." text ".global.b128 [%0], wide; }" ::"l"(address), \
                 "l"(value.lo), "l"(value.hi)                                                                        \
                 : "memory");                                                                                        \
  }
MSCCLPP_ARCH_WIDE(Volatile, "volatile")
MSCCLPP_ARCH_WIDE(RelaxedDevice, "relaxed.gpu")
MSCCLPP_ARCH_WIDE(RelaxedSystem, "relaxed.sys")
#undef MSCCLPP_ARCH_WIDE

}  // namespace ptx
#endif

/// Loads *address. Order: Volatile, Relaxed or Acquire (Acquire: 4 and 8 bytes). Called by one thread.
template <Order order, Scope scope, class T>
MSCCLPP_INLINE T load(const T* address) {
  static_assert(order != Order::Release && order != Order::AcqRel, "a load is Volatile, Relaxed or Acquire");
  static_assert(sizeof(T) < 16 || order != Order::Acquire,
                "a 16-byte load is Volatile or Relaxed: acquire through a 4- or 8-byte flag");
  static_assert(scope != Scope::Block || (order == Order::Relaxed && sizeof(T) < 16),
                "a load of Scope::Block is Relaxed, of 4 or 8 bytes");
  const auto* word = reinterpret_cast<const WordFor<T>*>(address);
#if defined(__CUDA_ARCH__)
  if constexpr (order == Order::Volatile) {
    return bitCast<T>(ptx::loadVolatile(word));
  } else if constexpr (scope == Scope::Block) {
    return bitCast<T>(ptx::loadRelaxedBlock(word));
  } else if constexpr (order == Order::Relaxed && scope == Scope::Device) {
    return bitCast<T>(ptx::loadRelaxedDevice(word));
  } else if constexpr (order == Order::Relaxed) {
    return bitCast<T>(ptx::loadRelaxedSystem(word));
  } else if constexpr (scope == Scope::Device) {
    return bitCast<T>(ptx::loadAcquireDevice(word));
  } else {
    return bitCast<T>(ptx::loadAcquireSystem(word));
  }
#else
  if constexpr (sizeof(T) == 16) {
    return bitCast<T>(
        Word128{__atomic_load_n(&word->lo, __ATOMIC_RELAXED), __atomic_load_n(&word->hi, __ATOMIC_RELAXED)});
  } else {
    return bitCast<T>(__atomic_load_n(word, order == Order::Acquire ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED));
  }
#endif
}

/// Stores value to *address. Order: Volatile, Relaxed or Release (Release: 4 and 8 bytes). Called by one thread.
template <Order order, Scope scope, class T>
MSCCLPP_INLINE void store(T* address, T value) {
  static_assert(order != Order::Acquire && order != Order::AcqRel, "a store is Volatile, Relaxed or Release");
  static_assert(sizeof(T) < 16 || order != Order::Release,
                "a 16-byte store is Volatile or Relaxed: release through a 4- or 8-byte flag");
  static_assert(scope != Scope::Block || (order == Order::Relaxed && sizeof(T) < 16),
                "a store of Scope::Block is Relaxed, of 4 or 8 bytes");
  auto* word = reinterpret_cast<WordFor<T>*>(address);
  const auto bits = bitCast<WordFor<T>>(value);
#if defined(__CUDA_ARCH__)
  if constexpr (order == Order::Volatile) {
    ptx::storeVolatile(word, bits);
  } else if constexpr (scope == Scope::Block) {
    ptx::storeRelaxedBlock(word, bits);
  } else if constexpr (order == Order::Relaxed && scope == Scope::Device) {
    ptx::storeRelaxedDevice(word, bits);
  } else if constexpr (order == Order::Relaxed) {
    ptx::storeRelaxedSystem(word, bits);
  } else if constexpr (scope == Scope::Device) {
    ptx::storeReleaseDevice(word, bits);
  } else {
    ptx::storeReleaseSystem(word, bits);
  }
#else
  if constexpr (sizeof(T) == 16) {
    __atomic_store_n(&word->lo, bits.lo, __ATOMIC_RELAXED);
    __atomic_store_n(&word->hi, bits.hi, __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(word, bits, order == Order::Release ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
  }
#endif
}

}  // namespace mscclpp::arch
