// A semaphore that kernels signal and wait on directly, over mapped memory.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp {

class Communicator;

/// Owner of the device handles at this end. One per semaphore: it counts the signals consumed here. Works for GPUs
/// (CudaIpc) and for kernels on CPU threads (SharedMemory). A wait is bounded by MSCCLPP_WAIT_TIMEOUT; if the semaphore
/// came from a communicator, Communicator::abort() and the failure of a rank end it too, and Communicator::monitor()
/// reports the reason.
class MemoryDevice2DeviceSemaphore {
 public:
  using DeviceHandle = SemaphoreHandle;

  /// Throws Error(InvalidUsage) if the peer's counter is not mapped here.
  explicit MemoryDevice2DeviceSemaphore(const Semaphore& semaphore);
  /// Builds the semaphore with the peer of `connection`, which must make the same call; blocks until both have.
  MemoryDevice2DeviceSemaphore(Communicator& communicator, const Connection& connection);
  MemoryDevice2DeviceSemaphore(MemoryDevice2DeviceSemaphore&&) noexcept = default;
  MemoryDevice2DeviceSemaphore& operator=(MemoryDevice2DeviceSemaphore&&) noexcept = default;

  Connection& connection() noexcept { return semaphore_.connection(); }
  DeviceHandle deviceHandle() const;
  /// Reports and aborts its waits; null if the semaphore was not built by a communicator.
  const std::shared_ptr<WaitMonitor>& monitor() const noexcept { return semaphore_.monitor(); }

 private:
  Semaphore semaphore_;
  std::shared_ptr<std::uint64_t> consumed_;
};

using SmDevice2DeviceSemaphore [[deprecated("use MemoryDevice2DeviceSemaphore")]] = MemoryDevice2DeviceSemaphore;

}  // namespace mscclpp
