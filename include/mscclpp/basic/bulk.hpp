// MSCCL++'s bulk copies: barriers in shared memory, loads that complete on a barrier, stores in groups.
#pragma once

#include "mscclpp/arch/atomic_update.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/mbarrier.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/element_kind.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A barrier in 8 bytes of shared memory that counts arrivals and copied bytes, phase by phase (arch/mbarrier.hpp).
/// Each call is made by one thread.
struct BulkBarrier {
  std::uint64_t word;

  /// Initialises the barrier for n arrivals per phase. Other threads may use it after a sync of their group.
  MSCCLPP_INLINE void init(std::uint32_t n = 1) {
    relaxedInit(n);
    arch::mbarrierInitFence();
  }
  /// The same without the fence: for all but the last of several barriers.
  MSCCLPP_INLINE void relaxedInit(std::uint32_t n = 1) { arch::mbarrierInit(&word, n); }
  /// Ends the use of the memory as a barrier. No thread may be waiting and no copy in flight.
  MSCCLPP_INLINE void invalidate() { arch::mbarrierInvalidate(&word); }

  /// Adds `bytes` to the bytes that the current phase waits for. Called before the loads start, or with the last
  /// arrival. Relaxed.
  MSCCLPP_INLINE void expect(std::uint32_t bytes) { arch::mbarrierExpect(&word, bytes); }
  /// Arrives. Release: threads that observe the end of the phase see what the caller wrote before.
  MSCCLPP_INLINE void arrive() { arch::mbarrierArrive(&word); }
  MSCCLPP_INLINE void arriveAndExpect(std::uint32_t bytes) { arch::mbarrierArriveExpect(&word, bytes); }

  /// Whether the phase of this parity (0, then 1, 0, ...) has completed. Acquire: what was copied in it may then be
  /// read.
  MSCCLPP_INLINE bool poll(std::uint32_t phase) const { return arch::mbarrierTest(&word, phase); }
  /// Waits until the phase has completed, then sets `phase` to the next one. Acquire. Returns false, with `phase`
  /// unchanged, if the wait failed.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(std::uint32_t& phase, Wait& policy) const {
    const std::uint32_t awaited = phase;
    const bool ended = policy.until(WaitSite{WaitOperation::Barrier, -1, -1, 0, awaited}, [&](std::uint64_t& seen) {
      seen = awaited ^ 1;
      return poll(awaited);
    });
    if (ended) phase ^= 1;
    return ended;
  }
  /// The same, with a timeout of 10 seconds.
  MSCCLPP_INLINE bool wait(std::uint32_t& phase) const {
    BoundedWait policy(nullptr, 10'000'000'000u);
    return wait(phase, policy);
  }
  /// MSCCL++-compatible overload: a negative count means no timeout, any other 10 seconds.
  MSCCLPP_INLINE bool wait(std::uint32_t& phase, std::int64_t maxSpinCount) const {
    BoundedWait policy(nullptr, maxSpinCount < 0 ? 0 : 10'000'000'000u);
    return wait(phase, policy);
  }
};

// Addresses are aligned to 16 bytes, and sizes, in bytes, are multiples of 16. `global` may be a peer's memory, mapped
// here. Each call is made by one thread.

/// Starts a copy to shared memory that completes `bytes` bytes on the barrier, which a thread must expect().
MSCCLPP_INLINE void bulkLoad(void* shared, const void* global, std::uint32_t bytes, BulkBarrier& barrier) {
  arch::bulkLoad(shared, global, bytes, &barrier.word);
}

/// Starts a copy from shared memory. Call bulkFence() first if ordinary stores wrote the data.
MSCCLPP_INLINE void bulkStore(void* global, const void* shared, std::uint32_t bytes) {
  arch::bulkStore(global, shared, bytes);
}

/// The operation of bulkReduceStore(): Add, Min or Max.
using BulkRedOp = arch::HardwareReduceOp;

namespace detail {

/// The reduction on a CPU: atomic per element and rounded after each operation, as in hardware.
template <class T, class Op>
struct HostBulkReducer;
#if !defined(__CUDACC_RTC__)
template <class T, class Op>
struct HostBulkReducer {
  static void reduce(void* global, const void* shared, std::uint32_t bytes) {
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
      const T ours = arch::loadPlain<T>(static_cast<const T*>(shared) + i);
      arch::host::update(static_cast<T*>(global) + i,
                         [&](T theirs) { return narrow<T>(Op::combine(widen<T>(theirs), widen<T>(ours))); });
    }
  }
};
#endif

}  // namespace detail

/// Starts a reduction into global memory: each element there becomes op(itself, the one in shared memory), atomically
/// and relaxed. Add takes fp16, bf16, float, double, 32- and 64-bit integers; Min and Max take fp16, bf16 and integers.
/// It completes like a store: bulkStoreCommit(), then bulkStoreWait(). The caller names T, as in MSCCL++.
template <class T, BulkRedOp op = BulkRedOp::Add>
MSCCLPP_INLINE void bulkReduceStore(void* global, const void* shared, std::uint32_t bytes) {
  static_assert(hasElementKind<T>, "bulk reductions take fp16, bf16, float, double, and 32- and 64-bit integers");
  arch::bulkReduceStore<op, elementKind<T>, detail::HostBulkReducer<T, typename detail::OperatorOf<op>::Type>>(
      global, shared, bytes);
}

/// Makes a group of the stores and reductions that the calling thread has started since its last commit.
MSCCLPP_INLINE void bulkStoreCommit() {
  arch::bulkCommit();
}
/// Waits until all but the calling thread's last N groups are visible to it; a later signal() makes them visible to the
/// peer. It waits for hardware only, so it takes no wait policy.
template <int N = 0>
MSCCLPP_INLINE void bulkStoreWait() {
  arch::bulkWait<N>();
}
/// Waits until all but the last N groups have read their shared memory, which may then be overwritten.
template <int N = 0>
MSCCLPP_INLINE void bulkStoreWaitSource() {
  arch::bulkWaitSource<N>();
}
/// Orders ordinary accesses to shared memory before later bulk copies of the calling thread (a proxy fence).
MSCCLPP_INLINE void bulkFence() {
  arch::bulkFenceShared();
}

}  // namespace mscclpp
