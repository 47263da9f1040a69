// Point-to-point semaphore: a 64-bit counter on each side, incremented by the peer and never reset. Each side keeps the
// number of signals that it has consumed.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/counter_wait.hpp"

namespace mscclpp {

/// Device side of a semaphore between two ranks. Each call is made by one thread; only one thread at a time may call
/// the functions that consume signals: wait, relaxedWait and poll. Signals accumulate: n signals satisfy n waits. There
/// is no flow control.
struct SemaphoreHandle : CounterWait<SemaphoreHandle> {
  std::uint64_t* inboundToken;          ///< local counter, incremented by the peer
  std::uint64_t* remoteInboundToken;    ///< the peer's counter, mapped here
  std::uint64_t* expectedInboundToken;  ///< local: number of signals consumed
  WaitControl* waitControl;             ///< for the record of a failed wait; may be null
  std::uint64_t waitTimeout;            ///< nanoseconds; 0: none
  std::int32_t rank;                    ///< for records only
  std::int32_t peer;                    ///< for records only

  /// Signals the peer `count` times at once. Release, system scope: what this thread wrote, or a group sync ordered
  /// before this call, is visible after the peer's wait() for the last of them.
  MSCCLPP_INLINE void signal(std::uint64_t count = 1) const {
    arch::reduceAdd<arch::Order::Release, arch::Scope::System>(remoteInboundToken, count);
  }

  /// The same, relaxed: half the latency, for synchronisation without data.
  MSCCLPP_INLINE void relaxedSignal(std::uint64_t count = 1) const {
    arch::reduceAdd<arch::Order::Relaxed, arch::Scope::System>(remoteInboundToken, count);
  }

  // For CounterWait, which has wait, relaxedWait and poll.
  MSCCLPP_INLINE std::uint64_t* counter() const { return inboundToken; }
  MSCCLPP_INLINE std::uint64_t* consumed() const { return expectedInboundToken; }
  MSCCLPP_INLINE std::uint64_t signalsPerWait() const { return 1; }
  static MSCCLPP_INLINE bool reached(std::uint64_t count, std::uint64_t expected) { return count >= expected; }
  MSCCLPP_INLINE WaitSite waitSite(std::uint64_t expected) const {
    return {WaitOperation::Semaphore, rank, peer, 0, expected};
  }
  MSCCLPP_INLINE void afterAcquire() const {}

  // MSCCL++-compatible functions.
  MSCCLPP_INLINE std::uint64_t loadInbound() const {
    return arch::load<arch::Order::Acquire, arch::Scope::System>(inboundToken);
  }
  MSCCLPP_INLINE std::uint64_t loadInboundRelaxed() const {
    return arch::load<arch::Order::Relaxed, arch::Scope::System>(inboundToken);
  }
  MSCCLPP_INLINE std::uint64_t loadExpectedInbound() const { return *expectedInboundToken; }
  /// Consumes a signal without waiting for it; returns the new number of signals consumed.
  MSCCLPP_INLINE std::uint64_t incExpectedInbound() const { return *expectedInboundToken += 1; }
};

static_assert(SemaphoreLike<SemaphoreHandle, BoundedWait>);

}  // namespace mscclpp
