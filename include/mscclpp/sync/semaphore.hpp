// Point-to-point semaphore: one 64-bit counter a side, raised by the peer, lowered by nobody; each side remembers how far it has waited.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Device side of a semaphore between two ranks. Each call is made by one thread; wait() and poll() by one thread at a time.
/// Signals accumulate: n signals let n waits pass. There is no back pressure.
struct SemaphoreHandle {
  std::uint64_t* inboundToken;          ///< local; the peer adds to it
  std::uint64_t* remoteInboundToken;    ///< the peer's, mapped here
  std::uint64_t* expectedInboundToken;  ///< local; how many signals have been consumed
  WaitControl* waitControl;             ///< where a failed wait reports; may be null
  std::uint64_t waitTimeout;            ///< nanoseconds; 0 waits until aborted
  std::int32_t rank;                    ///< for reports only
  std::int32_t peer;                    ///< for reports only

  /// Tells the peer. Everything this thread wrote before, and what it knows of through a group sync, is visible to whoever passes wait() there.
  MSCCLPP_INLINE void signal() {
    arch::reduceAdd<arch::Order::Release, arch::Scope::System>(remoteInboundToken, std::uint64_t{1});
  }

  /// Tells the peer, ordering nothing: half the latency, for pure synchronisation.
  MSCCLPP_INLINE void relaxedSignal() {
    arch::reduceAdd<arch::Order::Relaxed, arch::Scope::System>(remoteInboundToken, std::uint64_t{1});
  }

  /// Waits for the peer's next signal; what the peer wrote before signal() is visible afterwards. False: the wait policy gave up.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) {
    return waitOrdered<arch::Order::Acquire>(policy);
  }
  /// Waits for the next signal, ordering nothing.
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

  /// Consumes one signal if there is one (acquire); never waits.
  MSCCLPP_INLINE bool poll() {
    const std::uint64_t next = *expectedInboundToken + 1;
    if (arch::load<arch::Order::Acquire, arch::Scope::System>(inboundToken) < next) return false;
    *expectedInboundToken = next;
    return true;
  }

  // MSCCL++'s forms. It counts attempts in debug builds only; here a count below 0 means until aborted, any other the handle's own limit.
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return wait(policy);
  }
  MSCCLPP_INLINE bool relaxedWait(std::int64_t maxSpinCount) {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return relaxedWait(policy);
  }
  MSCCLPP_INLINE std::uint64_t loadInbound() const {
    return arch::load<arch::Order::Acquire, arch::Scope::System>(inboundToken);
  }
  MSCCLPP_INLINE std::uint64_t loadInboundRelaxed() const {
    return arch::load<arch::Order::Relaxed, arch::Scope::System>(inboundToken);
  }
  MSCCLPP_INLINE std::uint64_t loadExpectedInbound() const { return *expectedInboundToken; }
  /// Returns the new value.
  MSCCLPP_INLINE std::uint64_t incExpectedInbound() { return *expectedInboundToken += 1; }

 private:
  template <arch::Order order, class Wait>
  MSCCLPP_INLINE bool waitOrdered(Wait& policy) {
    const std::uint64_t next = *expectedInboundToken + 1;
    const bool arrived =
        policy.until(WaitSite{WaitOperation::Semaphore, rank, peer, 0, next}, [&](std::uint64_t& seen) {
          seen = arch::load<order, arch::Scope::System>(inboundToken);
          return seen >= next;
        });
    if (arrived) *expectedInboundToken = next;  // a wait that gave up leaves the signal to the next
    return arrived;
  }
};

static_assert(SemaphoreLike<SemaphoreHandle, BoundedWait>);

}  // namespace mscclpp
