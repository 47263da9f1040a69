// The waits of a handle on a counter that others increment and that is never reset.
#pragma once

#include "mscclpp/arch/backoff.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Base of semaphore handles. A wait or poll consumes signals of the counter: it succeeds when the counter has reached
/// the number of those consumed so far, plus those of one wait. `Handle` has `waitControl`, `waitTimeout`, and
///   std::uint64_t* counter() const, *consumed() const;         // in local memory; the second is this thread's
///   std::uint64_t signalsPerWait() const;
///   static bool reached(std::uint64_t count, std::uint64_t expected);
///   WaitSite waitSite(std::uint64_t expected) const;           // for the record of a failed wait
///   void afterAcquire() const;                                 // after a wait or poll with acquire order
/// and optionally
///   void updateWaitSite(WaitSite& site) const;                 // before the policy checks the deadline of a wait
/// Each function is called by one thread, one at a time.
template <class Handle>
struct CounterWait {
  /// Waits for the signals and consumes them. Acquire: what the signalling side wrote before its signal() is visible
  /// afterwards. Returns false, without consuming, if the wait failed.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) const {
    const bool arrived = waitOrdered<arch::Order::Acquire>(policy);
    handle().afterAcquire();
    return arrived;
  }
  /// The same, relaxed.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool relaxedWait(Wait& policy) const {
    return waitOrdered<arch::Order::Relaxed>(policy);
  }
  /// The same with the handle's timeout.
  MSCCLPP_INLINE bool wait() const {
    BoundedWait policy(handle().waitControl, handle().waitTimeout);
    return wait(policy);
  }
  MSCCLPP_INLINE bool relaxedWait() const {
    BoundedWait policy(handle().waitControl, handle().waitTimeout);
    return relaxedWait(policy);
  }
  // MSCCL++-compatible overloads: a negative count means no timeout, any other the handle's. (MSCCL++ counts attempts
  // in debug builds only.)
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) const {
    BoundedWait policy(handle().waitControl, maxSpinCount < 0 ? 0 : handle().waitTimeout);
    return wait(policy);
  }
  MSCCLPP_INLINE bool relaxedWait(std::int64_t maxSpinCount) const {
    BoundedWait policy(handle().waitControl, maxSpinCount < 0 ? 0 : handle().waitTimeout);
    return relaxedWait(policy);
  }

  /// Waits until `count` signals have arrived in all, those consumed included, and consumes none: for a counter of
  /// steps that several threads follow, each at its own pace. Acquire. Any number of threads may call it, at any time.
  /// Returns false if the wait failed.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool waitAtLeast(std::uint64_t count, Wait& policy) const {
    const bool arrived = waitUntilReached<arch::Order::Acquire>(count, policy);
    handle().afterAcquire();
    return arrived;
  }
  /// The same with the handle's timeout.
  MSCCLPP_INLINE bool waitAtLeast(std::uint64_t count) const {
    BoundedWait policy(handle().waitControl, handle().waitTimeout);
    return waitAtLeast(count, policy);
  }

  /// Consumes the signals if they are there, and returns whether they were. Acquire. Does not wait.
  MSCCLPP_INLINE bool poll() const {
    const std::uint64_t next = *handle().consumed() + handle().signalsPerWait();
    if (!Handle::reached(arch::load<arch::Order::Acquire, arch::Scope::System>(handle().counter()), next)) return false;
    *handle().consumed() = next;
    handle().afterAcquire();
    return true;
  }

 private:
  MSCCLPP_INLINE const Handle& handle() const { return static_cast<const Handle&>(*this); }

  template <arch::Order order, class Wait>
  MSCCLPP_INLINE bool waitOrdered(Wait& policy) const {
    const std::uint64_t next = *handle().consumed() + handle().signalsPerWait();
    const bool arrived = waitUntilReached<order>(next, policy);
    if (arrived) *handle().consumed() = next;  // a failed wait leaves the signals to the next one
    return arrived;
  }

  template <arch::Order order, class Wait>
  MSCCLPP_INLINE bool waitUntilReached(std::uint64_t expected, Wait& policy) const {
    WaitSite site = handle().waitSite(expected);
    // Outside of the lambda, in which NVRTC crashes on it.
    constexpr bool updatesWaitSite = requires(const Handle& self, WaitSite& updated) {
      self.updateWaitSite(updated);
    };
    [[maybe_unused]] unsigned failures = 0;
    return policy.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<order, arch::Scope::System>(handle().counter());
      if (Handle::reached(seen, expected)) return true;
      if constexpr (updatesWaitSite) {
        // BoundedWait reads the site after as many failed attempts.
        if (++failures % arch::attemptsPerDeadlineCheck == 0) handle().updateWaitSite(site);
      }
      return false;
    });
  }
};

}  // namespace mscclpp
