// Barrier of a group of ranks through the switch: a multicast addition signals all ranks, and each polls its own
// replica of the counter.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/multimem.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/counter_wait.hpp"

namespace mscclpp {

/// Device side. In each generation every rank calls signal() once and then wait() once. (The counter is a sum: a rank
/// that signalled twice would count as two.) Each call is made by one thread, one at a time. Memory is
/// zero-initialised.
struct SwitchSemaphoreHandle : CounterWait<SwitchSemaphoreHandle> {
  arch::MulticastAddress mcBarrierFlag;  ///< the counters of all ranks
  std::uint64_t* localBarrierFlag;       ///< this rank's counter, at its ordinary address
  std::uint64_t* barrierGen;             ///< local: number of signals consumed
  WaitControl* waitControl;              ///< for the record of a failed wait; may be null
  std::uint64_t waitTimeout;             ///< nanoseconds; 0: none
  std::int32_t nRanks;
  std::int32_t rank;  ///< for records only
  /// The numbers of the `nRanks` ranks in the job, in host-visible memory: if one of them has left the job, no wait can
  /// succeed any more, and waits that would time out fail at once. May be null; then they time out.
  const std::int32_t* jobRanks;

  /// Signals all ranks, this one included. Release, system scope: what this thread wrote, or a group sync ordered
  /// before this call, is visible after wait() on every rank, through the multicast address and through ordinary ones.
  MSCCLPP_INLINE void signal() const {
    arch::aliasFence();
    arch::multimemAdd<arch::Order::Release>(mcBarrierFlag, 1);
  }

  /// Signals all ranks. Relaxed.
  MSCCLPP_INLINE void relaxedSignal() const { arch::multimemAdd<arch::Order::Relaxed>(mcBarrierFlag, 1); }

  // For CounterWait, which has wait, relaxedWait and poll: they end a generation, for which every rank has to signal.
  // The record of a failed wait has the number of signals seen, but not which ranks are missing, unless one has left.
  MSCCLPP_INLINE std::uint64_t* counter() const { return localBarrierFlag; }
  MSCCLPP_INLINE std::uint64_t* consumed() const { return barrierGen; }
  MSCCLPP_INLINE std::uint64_t signalsPerWait() const { return static_cast<std::uint64_t>(nRanks); }
  /// Modulo 2^64, so that the counter may wrap around.
  static MSCCLPP_INLINE bool reached(std::uint64_t count, std::uint64_t expected) {
    return static_cast<std::int64_t>(count - expected) >= 0;
  }
  MSCCLPP_INLINE WaitSite waitSite(std::uint64_t expected) const {
    return {WaitOperation::Semaphore, rank, -1, 0, expected};
  }
  MSCCLPP_INLINE void updateWaitSite(WaitSite& site) const { site.peer = departedRank(waitControl, jobRanks, nRanks); }
  MSCCLPP_INLINE void afterAcquire() const { arch::aliasFence(); }

 private:
  /// The first of the ranks that has left the job; -1: none.
  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE int departedRank(WaitControl* control, const std::int32_t* ranks,
                                                               int count) {
    using namespace arch;
    if (control == nullptr || ranks == nullptr) return -1;
    if (load<Order::Acquire, Scope::System>(&control->anyLeft) == 0) return -1;
    for (int i = 0; i < count; ++i) {
      if (detail::hasLeft(*control, ranks[i])) return ranks[i];
    }
    return -1;
  }
};

static_assert(SemaphoreLike<SwitchSemaphoreHandle, BoundedWait>);

}  // namespace mscclpp
