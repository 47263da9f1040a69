// Barrier of a group through the switch: one multicast addition tells everyone, and each rank watches a counter of its own.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/multimem.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Device side. A generation is one signal() of every rank and one wait() of every rank: each rank signals once before each wait, and waits before it signals
/// again. (The counter is a sum: a rank that signalled twice would pass for two.) Each call is made by one thread, one at a time. The words start as zeros.
struct SwitchSemaphoreHandle {
  arch::MulticastAddress mcBarrierFlag;  ///< everyone's counter
  std::uint64_t* localBarrierFlag;       ///< this rank's replica of it, at its own address
  std::uint64_t* barrierGen;             ///< local; how many signals the waits so far have taken
  WaitControl* waitControl;              ///< where a failed wait reports; may be null
  std::uint64_t waitTimeout;             ///< nanoseconds; 0 waits until aborted
  std::int32_t nRanks;
  std::int32_t rank;  ///< for reports only

  /// Tells everyone, this rank included. What this thread wrote before, and what it knows of through a group sync, is visible to whoever passes wait(),
  /// at the multicast address and at the replicas' own.
  MSCCLPP_INLINE void signal() {
    arch::aliasFence();
    arch::multimemAdd<arch::Order::Release>(mcBarrierFlag, 1);
  }

  /// Tells everyone, ordering nothing.
  MSCCLPP_INLINE void relaxedSignal() { arch::multimemAdd<arch::Order::Relaxed>(mcBarrierFlag, 1); }

  /// Waits until every rank has signalled in this generation. False: the wait policy gave up. The record says how many signals are missing, not whose.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) {
    const bool passed = waitOrdered<arch::Order::Acquire>(policy);
    arch::aliasFence();
    return passed;
  }
  /// The same, ordering nothing.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool relaxedWait(Wait& policy) {
    return waitOrdered<arch::Order::Relaxed>(policy);
  }
  /// The same with the handle's own bounded policy.
  MSCCLPP_INLINE bool wait() {
    BoundedWait policy(waitControl, waitTimeout);
    return wait(policy);
  }
  MSCCLPP_INLINE bool relaxedWait() {
    BoundedWait policy(waitControl, waitTimeout);
    return relaxedWait(policy);
  }
  /// MSCCL++'s forms: a count below 0 means until aborted, any other the handle's own limit.
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return wait(policy);
  }
  MSCCLPP_INLINE bool relaxedWait(std::int64_t maxSpinCount) {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return relaxedWait(policy);
  }

  /// Ends the generation if every rank has signalled (acquire); never waits.
  MSCCLPP_INLINE bool poll() {
    const std::uint64_t next = nextGeneration();
    if (!reached(arch::load<arch::Order::Acquire, arch::Scope::System>(localBarrierFlag), next)) return false;
    *barrierGen = next;
    arch::aliasFence();
    return true;
  }

 private:
  MSCCLPP_INLINE std::uint64_t nextGeneration() const { return *barrierGen + static_cast<std::uint64_t>(nRanks); }

  /// Whether the counter has come as far as this generation. Modulo 2^64, so that no number of generations is too many.
  static MSCCLPP_INLINE bool reached(std::uint64_t count, std::uint64_t generation) {
    return static_cast<std::int64_t>(count - generation) >= 0;
  }

  template <arch::Order order, class Wait>
  MSCCLPP_INLINE bool waitOrdered(Wait& policy) {
    const std::uint64_t next = nextGeneration();
    const bool arrived = policy.until(WaitSite{WaitOperation::Semaphore, rank, -1, 0, next}, [&](std::uint64_t& seen) {
      seen = arch::load<order, arch::Scope::System>(localBarrierFlag);
      return reached(seen, next);
    });
    if (arrived) *barrierGen = next;  // a wait that gave up leaves the generation to the next
    return arrived;
  }
};

static_assert(SemaphoreLike<SwitchSemaphoreHandle, BoundedWait>);

}  // namespace mscclpp
