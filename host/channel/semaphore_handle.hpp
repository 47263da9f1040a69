// Device handles of semaphores, shared by the classes that own semaphores.
#pragma once

#include <chrono>
#include <cstdint>

#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp::detail {

inline Semaphore buildSemaphore(Communicator& communicator, const Connection& connection) {
  return communicator.buildSemaphore(connection, communicator.remoteRankOf(connection), communicator.tagOf(connection))
      .get();
}

/// The part of a device handle that waits.
inline SemaphoreHandle inboundHandle(const Semaphore& semaphore, std::uint64_t* consumed) {
  SemaphoreHandle handle{};
  handle.inboundToken = static_cast<std::uint64_t*>(semaphore.localMemory().data());
  handle.expectedInboundToken = consumed;
  handle.waitControl = semaphore.monitor() ? semaphore.monitor()->deviceControl() : nullptr;
  handle.waitTimeout =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(env()->waitTimeout).count());
  handle.rank = semaphore.rank();
  handle.peer = semaphore.peer();
  return handle;
}

}  // namespace mscclpp::detail
