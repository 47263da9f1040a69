// The device side of a semaphore whose signals come from the peer's host: it waits, and cannot signal.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp {

/// Each call is made by one thread, one at a time; what is ordered and when it gives up: sync/semaphore.hpp.
struct Host2DeviceSemaphoreHandle {
  SemaphoreHandle inbound_;  ///< without a remote counter

  MSCCLPP_INLINE bool poll() { return inbound_.poll(); }
  MSCCLPP_INLINE bool wait() { return inbound_.wait(); }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) {
    return inbound_.wait(policy);
  }

  // MSCCL++'s forms.
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) { return inbound_.wait(maxSpinCount); }
  MSCCLPP_INLINE std::uint64_t loadInbound() const { return inbound_.loadInbound(); }
  MSCCLPP_INLINE std::uint64_t loadExpectedInbound() const { return inbound_.loadExpectedInbound(); }
  MSCCLPP_INLINE std::uint64_t incExpectedInbound() { return inbound_.incExpectedInbound(); }
};

}  // namespace mscclpp
