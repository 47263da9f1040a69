// The operations of plans that move no data: signals, waits, flushes, barriers and device semaphores.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/plan/execution.hpp"

namespace mscclpp::plan {

/// Signals the other end of a channel. Called by one thread. Released: what the thread wrote, or a group sync ordered
/// before, is visible after the wait there, as are earlier writes through a Port channel. Returns false if the request
/// to the proxy failed.
MSCCLPP_INLINE bool signalEnd(const ChannelEnd& end, bool relaxed) {
  using namespace arch;
  if (end.access == Access::Port) return end.port.signal();
  if (relaxed) {
    reduceAdd<Order::Relaxed, Scope::System>(end.outbound, std::uint64_t{1});
  } else {
    reduceAdd<Order::Release, Scope::System>(end.outbound, std::uint64_t{1});
  }
  return true;
}

/// Waits for one more signal of the other end. Called by one thread. Acquires, unless relaxed. Returns false if the
/// wait failed.
template <WaitPolicy Wait>
MSCCLPP_INLINE bool waitForEnd(const ChannelEnd& end, bool relaxed, const PlanSite& site, Wait& wait) {
  using namespace arch;
  const std::uint64_t expected = *end.consumed + 1;
  const bool arrived =
      wait.until(site.waitFor(WaitOperation::PlanSignal, end.peer, expected), [&](std::uint64_t& seen) {
        seen = relaxed ? load<Order::Relaxed, Scope::System>(end.inbound)
                       : load<Order::Acquire, Scope::System>(end.inbound);
        return seen >= expected;
      });
  if (arrived) *end.consumed = expected;
  return arrived;
}

/// Waits until a device semaphore is positive, and subtracts one. Called by one thread. Acquires. Returns false if the
/// wait failed.
template <WaitPolicy Wait>
MSCCLPP_INLINE bool acquireSemaphore(std::uint64_t* semaphore, const PlanSite& site, Wait& wait) {
  using namespace arch;
  return wait.until(site.waitFor(WaitOperation::PlanSemaphore, -1, 1), [&](std::uint64_t& seen) {
    seen = load<Order::Relaxed, Scope::Device>(semaphore);
    return seen != 0 && compareExchange<Order::AcqRel, Scope::Device>(semaphore, seen, seen - 1) == seen;
  });
}
/// Adds one. Called by one thread. Releases what the thread wrote, or a group sync ordered before.
MSCCLPP_INLINE void releaseSemaphore(std::uint64_t* semaphore) {
  arch::reduceAdd<arch::Order::Release, arch::Scope::Device>(semaphore, std::uint64_t{1});
}

/// Arrives at a barrier of `blocks` blocks and waits for the others. Called by one thread of the block, between two
/// syncs. Acquires and releases. Returns false if the wait failed.
template <WaitPolicy Wait>
MSCCLPP_INLINE bool arriveAndWait(GridBarrier& barrier, std::int32_t blocks, const PlanSite& site, Wait& wait) {
  using namespace arch;
  const std::uint32_t before = load<Order::Relaxed, Scope::Device>(&barrier.generation);
  if (fetchAdd<Order::AcqRel, Scope::Device>(&barrier.arrived, 1u) == static_cast<std::uint32_t>(blocks) - 1) {
    store<Order::Relaxed, Scope::Device>(&barrier.arrived, 0u);
    store<Order::Release, Scope::Device>(&barrier.generation, before + 1);
    return true;
  }
  return wait.until(site.waitFor(WaitOperation::PlanBarrier, -1, before + 1), [&](std::uint64_t& seen) {
    seen = load<Order::Acquire, Scope::Device>(&barrier.generation);
    return seen != before;
  });
}

}  // namespace mscclpp::plan
