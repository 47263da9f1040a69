#include "mscclpp/host/channel/host_semaphore.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "host/channel/semaphore_handle.hpp"
#include "host/transport/connection_base.hpp"
#include "host/transport/context_state.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp {

Host2DeviceSemaphore::Host2DeviceSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore),
      consumed_(connection().context()->state().allocateCounter(connection().localDevice())),
      sent_(std::make_unique<std::uint64_t>(0)) {}

Host2DeviceSemaphore::Host2DeviceSemaphore(Communicator& communicator, const Connection& connection)
    : Host2DeviceSemaphore(detail::buildSemaphore(communicator, connection)) {}

void Host2DeviceSemaphore::signal() {
  connection().updateAndSync(semaphore_.remoteMemory(), 0, sent_.get(), *sent_ + 1);
}

Host2DeviceSemaphoreHandle Host2DeviceSemaphore::deviceHandle() const {
  return {detail::inboundHandle(semaphore_, consumed_.get())};
}

Host2HostSemaphore::Host2HostSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore), sent_(std::make_unique<std::uint64_t>(0)) {
  if (connection().localDevice().type != DeviceType::CPU) {
    throw Error(
        "Host2HostSemaphore: its counters must be in host memory; connect with DeviceType::CPU, over SharedMemory or a "
        "network",
        ErrorCode::InvalidUsage);
  }
}

Host2HostSemaphore::Host2HostSemaphore(Communicator& communicator, const Connection& connection)
    : Host2HostSemaphore(detail::buildSemaphore(communicator, connection)) {}

void Host2HostSemaphore::signal() {
  connection().updateAndSync(semaphore_.remoteMemory(), 0, sent_.get(), *sent_ + 1);
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
  // Spins briefly for a peer that is running; a peer that is not may need this core.
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
    if (semaphore_.monitor()) {
      // The failure of any rank ends the wait; if the peer failed too, the error names the peer.
      if (const auto failure = connection().base()->peerFailure()) {
        throw Error("Host2HostSemaphore::wait: " + detail::describe(*failure), ErrorCode::RemoteError);
      }
      semaphore_.monitor()->check();
      if (semaphore_.monitor()->hasLeft(semaphore_.peer())) {
        if (poll()) return;  // a signal that the peer sent before it left
        throw Error("Host2HostSemaphore::wait: rank " + std::to_string(semaphore_.peer()) +
                        " has left the job without sending signal " + std::to_string(consumed_ + 1) + " to rank " +
                        std::to_string(semaphore_.rank()),
                    ErrorCode::RemoteError);
      }
    }
    std::this_thread::yield();
  }
}

}  // namespace mscclpp
