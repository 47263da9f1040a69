// Device side of a semaphore that the peer's host signals: it can wait, but not signal.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp {

/// Each call is made by one thread, one at a time. Ordering and errors are those of SemaphoreHandle
/// (sync/semaphore.hpp). `remoteInboundToken` is null.
struct Host2DeviceSemaphoreHandle : SemaphoreHandle {
  void signal(std::uint64_t count = 1) const =
      delete;  ///< the host signals the peer, by Host2DeviceSemaphore::signal()
  void relaxedSignal(std::uint64_t count = 1) const = delete;
};

}  // namespace mscclpp
