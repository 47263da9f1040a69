// The device side of a semaphore whose signals come from the peer's host: it waits, and cannot signal.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp {

/// Each call is made by one thread, one at a time; what is ordered and when it gives up: sync/semaphore.hpp. `remoteInboundToken` is null.
struct Host2DeviceSemaphoreHandle : SemaphoreHandle {
  void signal() = delete;  ///< the peer is signalled by Host2DeviceSemaphore::signal, on the host
  void relaxedSignal() = delete;
};

}  // namespace mscclpp
