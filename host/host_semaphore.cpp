#include "mscclpp/host/host_semaphore.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "semaphore_handle.hpp"

namespace mscclpp {

Host2DeviceSemaphore::Host2DeviceSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore),
      connection_(semaphore.connection()),
      consumed_(connection_.context()->takeCounter(connection_.localDevice())),
      sent_(std::make_unique<std::uint64_t>(0)) {}

Host2DeviceSemaphore::Host2DeviceSemaphore(Communicator& communicator, const Connection& connection)
    : Host2DeviceSemaphore(detail::buildSemaphore(communicator, connection)) {}

void Host2DeviceSemaphore::signal() {
  connection_.updateAndSync(semaphore_.remoteMemory(), 0, sent_.get(), *sent_ + 1);
}

Host2DeviceSemaphoreHandle Host2DeviceSemaphore::deviceHandle() const {
  return {detail::inboundHandle(semaphore_, consumed_.get())};
}

Host2HostSemaphore::Host2HostSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore), connection_(semaphore.connection()), sent_(std::make_unique<std::uint64_t>(0)) {
  if (connection_.transport() == Transport::CudaIpc || connection_.localDevice().type != DeviceType::CPU) {
    throw Error(
        "Host2HostSemaphore: its counters must be in host memory; connect with DeviceType::CPU, over SharedMemory or a "
        "network",
        ErrorCode::InvalidUsage);
  }
}

Host2HostSemaphore::Host2HostSemaphore(Communicator& communicator, const Connection& connection)
    : Host2HostSemaphore(detail::buildSemaphore(communicator, connection)) {}

void Host2HostSemaphore::signal() {
  connection_.updateAndSync(semaphore_.remoteMemory(), 0, sent_.get(), *sent_ + 1);
}

bool Host2HostSemaphore::poll() {
  auto* counter = static_cast<std::uint64_t*>(semaphore_.localMemory().data());
  if (std::atomic_ref(*counter).load(std::memory_order_acquire) <= consumed_) return false;
  ++consumed_;
  return true;
}

void Host2HostSemaphore::wait(std::int64_t maxSpinCount) {
  if (poll()) return;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  // A short spin catches a peer that runs; one that does not run needs this core.
  constexpr std::int64_t spinsBeforeYield = 1000;
  for (std::int64_t spins = 1; !poll(); ++spins) {
    const auto waited = Clock::now() - start;
    if (maxSpinCount >= 0 && (waited >= env()->waitTimeout || spins >= maxSpinCount)) {
      throw Error("Host2HostSemaphore::wait: rank " + std::to_string(semaphore_.rank()) + " waited for signal " +
                      std::to_string(consumed_ + 1) + " of rank " + std::to_string(semaphore_.peer()) + " for " +
                      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()) + " ms",
                  ErrorCode::Timeout);
    }
    if (spins < spinsBeforeYield) continue;
    if (semaphore_.monitor()) semaphore_.monitor()->check();
    std::this_thread::yield();
  }
}

}  // namespace mscclpp
