// Instructions on multicast memory (PTX multimem; sm_90 and newer, with NVSwitch).
//
// A multicast address refers to a replica on every GPU of a group. The CPU implementation holds the address of every
// replica and visits them in rank order. Each call is made by one thread.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/multimem_table.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// The largest number of replicas behind a multicast address of CPU ranks.
inline constexpr int maxReplicas = 72;

/// The addresses of the replicas, to which `base` of a CPU rank's multicast address points.
struct Replicas {
  std::int32_t count;
  std::byte* base[maxReplicas];
};

/// An address in multicast memory, made by the host. base: on a GPU the address at which the multicast object is
/// mapped, on a CPU that of a Replicas. offset: bytes.
struct MulticastAddress {
  std::byte* base;
  std::size_t offset;

  MSCCLPP_INLINE MulticastAddress operator+(std::size_t bytes) const { return {base, offset + bytes}; }
};

#if defined(__CUDA_ARCH__)
namespace ptx {

MSCCLPP_DEVICE __forceinline__ void multimemStore(void* a, std::uint32_t v) {
  asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(a), "r"(v) : "memory");
}
MSCCLPP_DEVICE __forceinline__ void multimemStore(void* a, std::uint64_t v) {
  asm volatile("multimem.st.relaxed.sys.global.u64 [%0], %1;" ::"l"(a), "l"(v) : "memory");
}
MSCCLPP_DEVICE __forceinline__ void multimemStore(void* a, Word128 v) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(a),
               "r"(static_cast<std::uint32_t>(v.lo)), "r"(static_cast<std::uint32_t>(v.lo >> 32)),
               "r"(static_cast<std::uint32_t>(v.hi)), "r"(static_cast<std::uint32_t>(v.hi >> 32))
               : "memory");
}

}  // namespace ptx
#else
namespace host {

/// Calls visit(pointer) with the address in each replica, in rank order.
template <class Visit>
MSCCLPP_INLINE void forEachReplica(const MulticastAddress& address, const Visit& visit) {
  const auto* replicas = reinterpret_cast<const Replicas*>(address.base);
  for (int r = 0; r < replicas->count; ++r) visit(replicas->base[r] + address.offset);
}

}  // namespace host
#endif

/// Loads the reduction of the V at this address over all replicas. Relaxed, system scope. HostReducer: does the
/// arithmetic on a CPU; see the reducer of basic/multicast.hpp.
template <HardwareReduceOp op, ElementKind kind, Accumulation in, class HostReducer, class V>
MSCCLPP_INLINE V multimemLoadReduce(const MulticastAddress& address) {
  static_assert(multimemLoadReduces(op, kind, sizeof(V), in),
                "no such load-reduce: arch/multimem_table.hpp lists the types, operators, sizes and accumulators");
  static_assert(!isFp8(kind) || multimemReducesFp8, "the switch reduces fp8 on sm_100a and sm_103a only");
  using Word = WordFor<V>;
#if defined(__CUDA_ARCH__)
  const Word word = ptx::MultimemLoadReduce<op, kind, sizeof(V), in>::run(address.base + address.offset);
  return bitCast<V>(word);
#else
  const auto* replicas = reinterpret_cast<const Replicas*>(address.base);
  const auto of = [&](int rank) {
    const std::byte* replica = replicas->base[rank] + address.offset;
    return bitCast<V>(load<Order::Relaxed, Scope::System>(reinterpret_cast<const Word*>(replica)));
  };
  HostReducer reducer(of(0));
  for (int rank = 1; rank < replicas->count; ++rank) reducer.add(of(rank));
  return reducer.finish();
#endif
}

/// Each element of each replica becomes op(itself, the element of value), atomically. Relaxed, system scope.
/// HostReducer: its static update(replica, value) does that to one replica on a CPU.
template <HardwareReduceOp op, ElementKind kind, class HostReducer, class V>
MSCCLPP_INLINE void multimemStoreReduce(const MulticastAddress& address, const V& value) {
  static_assert(multimemStoreReduces(op, kind, sizeof(V)),
                "no such store-reduce: arch/multimem_table.hpp lists the types, operators and sizes");
#if defined(__CUDA_ARCH__)
  ptx::MultimemStoreReduce<op, kind, sizeof(V)>::run(address.base + address.offset, bitCast<WordFor<V>>(value));
#else
  host::forEachReplica(address, [&](std::byte* replica) { HostReducer::update(replica, value); });
#endif
}

/// Stores value, 4, 8 or 16 bytes, to every replica. Relaxed, system scope.
template <class V>
MSCCLPP_INLINE void multimemStore(const MulticastAddress& address, const V& value) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16, "a multicast store is 4, 8 or 16 bytes");
  const auto word = bitCast<WordFor<V>>(value);
#if defined(__CUDA_ARCH__)
  ptx::multimemStore(address.base + address.offset, word);
#else
  host::forEachReplica(address, [&](std::byte* replica) {
    store<Order::Relaxed, Scope::System>(reinterpret_cast<WordFor<V>*>(replica), word);
  });
#endif
}

/// Adds value to the 8-byte word of every replica. System scope. Order: Relaxed or Release.
template <Order order>
MSCCLPP_INLINE void multimemAdd(const MulticastAddress& address, std::uint64_t value) {
  static_assert(order == Order::Relaxed || order == Order::Release,
                "a reduction has no result, so it is Relaxed or Release");
#if defined(__CUDA_ARCH__)
  if constexpr (order == Order::Release) {
    asm volatile("multimem.red.release.sys.global.add.u64 [%0], %1;" ::"l"(address.base + address.offset), "l"(value)
                 : "memory");
  } else {
    asm volatile("multimem.red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(address.base + address.offset), "l"(value)
                 : "memory");
  }
#else
  host::forEachReplica(address, [&](std::byte* replica) {
    reduceAdd<order, Scope::System>(reinterpret_cast<std::uint64_t*>(replica), value);
  });
#endif
}

/// Proxy fence: orders the calling thread's accesses through one mapping of a memory before its later ones through
/// another. Multicast memory is mapped twice: as a multicast address, and as the replica of each GPU.
MSCCLPP_INLINE void aliasFence() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.alias;" ::: "memory");
#endif
}

}  // namespace mscclpp::arch
