// Semaphores that the host signals, for a kernel of the peer or for its host.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/sync/host_semaphore.hpp"

namespace mscclpp {

class Communicator;

/// The host signals; a kernel of the peer waits. Move-only; one per semaphore.
class Host2DeviceSemaphore {
 public:
  using DeviceHandle = Host2DeviceSemaphoreHandle;

  explicit Host2DeviceSemaphore(const Semaphore& semaphore);
  /// Builds the semaphore with the peer of `connection`, which must make the same call; blocks until both have.
  Host2DeviceSemaphore(Communicator& communicator, const Connection& connection);
  Host2DeviceSemaphore(Host2DeviceSemaphore&&) noexcept = default;
  Host2DeviceSemaphore& operator=(Host2DeviceSemaphore&&) noexcept = default;

  Connection& connection() noexcept { return semaphore_.connection(); }
  /// Adds one to the peer's counter, after all earlier operations of the connection have arrived. One thread at a time.
  void signal();
  DeviceHandle deviceHandle() const;
  /// Reports and aborts its waits; null if the semaphore was not built by a communicator.
  const std::shared_ptr<WaitMonitor>& monitor() const noexcept { return semaphore_.monitor(); }

 private:
  Semaphore semaphore_;
  std::shared_ptr<std::uint64_t> consumed_;
  std::unique_ptr<std::uint64_t> sent_;
};

/// Both ends are hosts. Move-only; one per semaphore; one thread at a time.
class Host2HostSemaphore {
 public:
  /// Throws Error(InvalidUsage) unless the counters are in host memory (a connection of DeviceType::CPU).
  explicit Host2HostSemaphore(const Semaphore& semaphore);
  Host2HostSemaphore(Communicator& communicator, const Connection& connection);
  Host2HostSemaphore(Host2HostSemaphore&&) noexcept = default;
  Host2HostSemaphore& operator=(Host2HostSemaphore&&) noexcept = default;

  Connection& connection() noexcept { return semaphore_.connection(); }
  /// Adds one to the peer's counter, after all earlier operations of the connection have arrived.
  void signal();
  /// Consumes one signal if there is one; never blocks.
  bool poll();
  /// Waits for the next signal; what the peer wrote before it is visible afterwards. Throws Error(Timeout) after
  /// MSCCLPP_WAIT_TIMEOUT or `maxSpinCount` polls (negative: no limit), and what WaitMonitor::check throws if the
  /// communicator of the semaphore is aborted or one of its ranks fails.
  void wait(std::int64_t maxSpinCount = 10000000);

 private:
  Semaphore semaphore_;
  std::unique_ptr<std::uint64_t> sent_;
  std::uint64_t consumed_ = 0;
};

}  // namespace mscclpp
