// Instructions on multicast memory: one address that stands for a replica on every GPU of a group (PTX multimem; sm_90 and newer, NVSwitch).
//
// A CPU has replicas as well, of which it knows every address: host twins visit them in the order of the ranks.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/multimem_table.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// Most replicas that a multicast address of CPU ranks may have.
inline constexpr int maxReplicas = 72;

/// What `base` of a CPU rank's multicast address points to.
struct Replicas {
  std::int32_t count;
  std::byte* base[maxReplicas];
};

/// A place in multicast memory. base: on a GPU the address where the multicast object is mapped, on a CPU that of a Replicas. Plain data, made by the host.
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
MSCCLPP_DEVICE __forceinline__ void multimemStore(void* a, Word16 v) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(a),
               "r"(static_cast<std::uint32_t>(v.lo)), "r"(static_cast<std::uint32_t>(v.lo >> 32)),
               "r"(static_cast<std::uint32_t>(v.hi)), "r"(static_cast<std::uint32_t>(v.hi >> 32))
               : "memory");
}

}  // namespace ptx
#else
namespace twin {

/// Calls visit(address of the place in the replica) for each replica, in the order of the ranks.
template <class Visit>
MSCCLPP_INLINE void eachReplica(const MulticastAddress& address, const Visit& visit) {
  const auto* replicas = reinterpret_cast<const Replicas*>(address.base);
  for (int r = 0; r < replicas->count; ++r) visit(replicas->base[r] + address.offset);
}

}  // namespace twin
#endif

/// The reduction over all replicas of the V at this address. Twin: as the reducer of basic/multicast.hpp; on a CPU it says what to do with the replicas.
template <Arithmetic op, ElementKind kind, Accumulation in, class Twin, class V>
MSCCLPP_INLINE V multimemLoadReduce(const MulticastAddress& address) {
  static_assert(
      multimemLoadReduces(op, kind, sizeof(V), in),
      "no load-reduce of this kind: arch/multimem_table.hpp has the table of types, operators, sizes and accumulators");
  static_assert(!isFp8(kind) || multimemReducesFp8, "the switch reduces fp8 for sm_100a only");
  using Word = WordFor<V>;
#if defined(__CUDA_ARCH__)
  const Word word = ptx::MultimemLoadReduce<op, kind, sizeof(V), in>::run(address.base + address.offset);
  return bitCast<V>(word);
#else
  const auto* replicas = reinterpret_cast<const Replicas*>(address.base);
  const auto of = [&](int rank) {
    const std::byte* place = replicas->base[rank] + address.offset;
    return bitCast<V>(load<Order::Relaxed, Scope::System>(reinterpret_cast<const Word*>(place)));
  };
  Twin reducer(of(0));
  for (int rank = 1; rank < replicas->count; ++rank) reducer.add(of(rank));
  return reducer.finish();
#endif
}

/// Each element of each replica becomes op of itself and ours, atomically, in no order with others. Twin: its update(replica, value) does that to one.
template <Arithmetic op, ElementKind kind, class Twin, class V>
MSCCLPP_INLINE void multimemStoreReduce(const MulticastAddress& address, const V& value) {
  static_assert(multimemStoreReduces(op, kind, sizeof(V)),
                "no store-reduce of this kind: arch/multimem_table.hpp has the table of types, operators and sizes");
#if defined(__CUDA_ARCH__)
  ptx::MultimemStoreReduce<op, kind, sizeof(V)>::run(address.base + address.offset, bitCast<WordFor<V>>(value));
#else
  twin::eachReplica(address, [&](std::byte* replica) { Twin::update(replica, value); });
#endif
}

/// Stores value into every replica: 4, 8 or 16 bytes.
template <class V>
MSCCLPP_INLINE void multimemStore(const MulticastAddress& address, const V& value) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16, "a multicast store is 4, 8 or 16 bytes");
  const auto word = bitCast<WordFor<V>>(value);
#if defined(__CUDA_ARCH__)
  ptx::multimemStore(address.base + address.offset, word);
#else
  twin::eachReplica(address, [&](std::byte* replica) {
    store<Order::Relaxed, Scope::System>(reinterpret_cast<WordFor<V>*>(replica), word);
  });
#endif
}

/// Adds value to the 8-byte word of every replica. Order: Relaxed or Release.
template <Order order>
MSCCLPP_INLINE void multimemAdd(const MulticastAddress& address, std::uint64_t value) {
  static_assert(order == Order::Relaxed || order == Order::Release,
                "a reduction returns nothing, so it can only release");
#if defined(__CUDA_ARCH__)
  if constexpr (order == Order::Release) {
    asm volatile("multimem.red.release.sys.global.add.u64 [%0], %1;" ::"l"(address.base + address.offset), "l"(value)
                 : "memory");
  } else {
    asm volatile("multimem.red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(address.base + address.offset), "l"(value)
                 : "memory");
  }
#else
  twin::eachReplica(address, [&](std::byte* replica) {
    reduceAdd<order, Scope::System>(reinterpret_cast<std::uint64_t*>(replica), value);
  });
#endif
}

/// Orders accesses of the calling thread to one address of a memory before its later ones to another: multicast memory is also mapped as what each GPU owns.
MSCCLPP_INLINE void aliasFence() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.proxy.alias;" ::: "memory");
#endif
}

}  // namespace mscclpp::arch
