#include "mscclpp/host/channel/memory_semaphore.hpp"

#include "host/channel/semaphore_handle.hpp"
#include "host/transport/context_state.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp {

MemoryDevice2DeviceSemaphore::MemoryDevice2DeviceSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore), consumed_(connection().context()->state().allocateCounter(connection().localDevice())) {
  if (semaphore_.remoteMemory().data() == nullptr) {
    throw Error(
        "MemoryDevice2DeviceSemaphore: the peer's counter is not mapped here; it takes a connection over CudaIpc "
        "(GPUs) or SharedMemory (CPUs)",
        ErrorCode::InvalidUsage);
  }
}

MemoryDevice2DeviceSemaphore::MemoryDevice2DeviceSemaphore(Communicator& communicator, const Connection& connection)
    : MemoryDevice2DeviceSemaphore(detail::buildSemaphore(communicator, connection)) {}

SemaphoreHandle MemoryDevice2DeviceSemaphore::deviceHandle() const {
  SemaphoreHandle handle = detail::inboundHandle(semaphore_, consumed_.get());
  handle.remoteInboundToken = static_cast<std::uint64_t*>(semaphore_.remoteMemory().data());
  return handle;
}

}  // namespace mscclpp
