#include "mscclpp/host/channel/memory_channel.hpp"

#include <utility>

#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

BaseMemoryChannel::BaseMemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore)
    : semaphore_(std::move(semaphore)) {}

BaseMemoryChannel::BaseMemoryChannel(const Semaphore& semaphore)
    : BaseMemoryChannel(std::make_shared<MemoryDevice2DeviceSemaphore>(semaphore)) {}

BaseMemoryChannelHandle BaseMemoryChannel::deviceHandle() const {
  if (!semaphore_) throw Error("this memory channel is empty: make it with a semaphore", ErrorCode::InvalidUsage);
  return {semaphore_->deviceHandle()};
}

MemoryChannel::MemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore, RegisteredMemory dst,
                             RegisteredMemory src, void* packetBuffer)
    : BaseMemoryChannel(std::move(semaphore)), dst_(std::move(dst)), src_(std::move(src)), packetBuffer_(packetBuffer) {
  if (!semaphore_) throw Error("MemoryChannel: the semaphore must not be null", ErrorCode::InvalidUsage);
  const Transport transport = semaphore_->connection().transport();
  if (dst_.data() == nullptr || !dst_.transports().has(transport)) {
    throw Error(
        "MemoryChannel: the peer's memory is not mapped here; the peer must register it for " + nameOf(transport),
        ErrorCode::InvalidUsage);
  }
  detail::enableDeviceAccess(dst_);
}

MemoryChannel::MemoryChannel(const Semaphore& semaphore, RegisteredMemory dst, RegisteredMemory src, void* packetBuffer)
    : MemoryChannel(std::make_shared<MemoryDevice2DeviceSemaphore>(semaphore), std::move(dst), std::move(src),
                    packetBuffer) {}

MemoryChannelHandle MemoryChannel::deviceHandle() const {
  return {BaseMemoryChannel::deviceHandle(), dst_.data(), src_.data(), packetBuffer_};
}

}  // namespace mscclpp
