// Bulk copies under the names of MSCCL++: a barrier in shared memory, loads that land on it, stores in groups.
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

/// 8 bytes of shared memory that count arrivals and landed bytes, phase by phase (arch/mbarrier.hpp). Each call is made by one thread.
struct BulkBarrier {
  std::uint64_t word;

  /// For n arrivals a phase. The other threads may use it after a sync of their group.
  MSCCLPP_INLINE void init(std::uint32_t n = 1) {
    relaxedInit(n);
    arch::mbarrierInitFence();
  }
  /// The same without the fence, which one init for several barriers saves.
  MSCCLPP_INLINE void relaxedInit(std::uint32_t n = 1) { arch::mbarrierInit(&word, n); }
  /// Gives the memory back for other use. Nobody may be waiting, and nothing be under way.
  MSCCLPP_INLINE void invalidate() { arch::mbarrierInvalidate(&word); }

  /// The present phase ends only after `bytes` more have landed. Call it before the loads start, or with the last arrival.
  MSCCLPP_INLINE void expect(std::uint32_t bytes) { arch::mbarrierExpect(&word, bytes); }
  /// Counts the caller in; what it wrote is visible to those who see the phase end.
  MSCCLPP_INLINE void arrive() { arch::mbarrierArrive(&word); }
  MSCCLPP_INLINE void arriveAndExpect(std::uint32_t bytes) { arch::mbarrierArriveExpect(&word, bytes); }

  /// Whether the phase (0, then 1, 0, ...) has ended; what landed in it may then be read.
  MSCCLPP_INLINE bool poll(std::uint32_t phase) const { return arch::mbarrierTest(&word, phase); }
  /// Waits for the end of the phase and makes `phase` the next one. False: the wait policy gave up, and `phase` is still
  /// the one to wait for.
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
  /// The same for ten seconds at most.
  MSCCLPP_INLINE bool wait(std::uint32_t& phase) const {
    BoundedWait policy(nullptr, 10'000'000'000u);
    return wait(phase, policy);
  }
  /// MSCCL++'s form: a count below 0 means without limit.
  MSCCLPP_INLINE bool wait(std::uint32_t& phase, std::int64_t maxSpinCount) const {
    BoundedWait policy(nullptr, maxSpinCount < 0 ? 0 : 10'000'000'000u);
    return wait(phase, policy);
  }
};

// Addresses are aligned to 16 bytes and sizes multiples of 16; `global` may be a peer's memory, mapped here. Each call is made by one thread.

/// Starts a copy to shared memory; `bytes` land on the barrier at its end, so somebody must expect them.
MSCCLPP_INLINE void bulkLoad(void* shared, const void* global, std::uint32_t bytes, BulkBarrier& barrier) {
  arch::bulkLoad(shared, global, bytes, &barrier.word);
}

/// Starts a copy from shared memory. What ordinary stores wrote there needs bulkFence() first.
MSCCLPP_INLINE void bulkStore(void* global, const void* shared, std::uint32_t bytes) {
  arch::bulkStore(global, shared, bytes);
}

/// What bulkReduceStore makes of the element in memory and the one that comes: Add, Min or Max.
using BulkRedOp = arch::Arithmetic;

namespace detail {

/// The reduction on a CPU: an update of each element by itself, rounded each time as the hardware does.
template <class T, class Op>
struct BulkReduceTwin;
#if !defined(__CUDACC_RTC__)
template <class T, class Op>
struct BulkReduceTwin {
  static void reduce(void* global, const void* shared, std::uint32_t bytes) {
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
      const T ours = arch::loadPlain<T>(static_cast<const T*>(shared) + i);
      arch::twin::update(static_cast<T*>(global) + i,
                         [&](T theirs) { return narrow<T>(Op::combine(widen<T>(theirs), widen<T>(ours))); });
    }
  }
};
#endif

}  // namespace detail

/// Starts a reduction into global memory: each element there becomes op of itself and the one of shared memory, atomically, in any order with others.
/// Sums: fp16, bf16, float, double, 32- and 64-bit integers. Min and Max: fp16, bf16, integers. Waited for like a store.
template <class T, BulkRedOp op = BulkRedOp::Add>
MSCCLPP_INLINE void bulkReduceStore(T* global, const T* shared, std::uint32_t bytes) {
  static_assert(hasElementKind<T>, "bulk reductions know fp16, bf16, float, double, and integers of 32 and 64 bits");
  arch::bulkReduceStore<op, elementKind<T>, detail::BulkReduceTwin<T, typename detail::OperatorOf<op>::Type>>(
      global, shared, bytes);
}

/// Closes the group of the stores and reductions that the calling thread has started since the last commit.
MSCCLPP_INLINE void bulkStoreCommit() {
  arch::bulkCommit();
}
/// Waits until all but the calling thread's last N groups are visible to it, and so to whom it signals. Waits for hardware only, so no policy bounds it.
template <int N = 0>
MSCCLPP_INLINE void bulkStoreWait() {
  arch::bulkWait<N>();
}
/// Waits until all but the last N groups have read their shared memory, which may then be written again.
template <int N = 0>
MSCCLPP_INLINE void bulkStoreWaitSource() {
  arch::bulkWaitSource<N>();
}
/// Orders ordinary accesses to shared memory before later bulk copies of the calling thread.
MSCCLPP_INLINE void bulkFence() {
  arch::bulkFenceShared();
}

}  // namespace mscclpp
