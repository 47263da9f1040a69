// Memory channels: kernels read and write a peer's mapped memory. The host objects; the device side is
// channel/memory.hpp.
#pragma once

#include <memory>

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/host/channel/memory_semaphore.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {

/// Synchronisation only.
class BaseMemoryChannel {
 public:
  using DeviceHandle = BaseMemoryChannelHandle;

  /// Empty: deviceHandle() throws Error(InvalidUsage).
  BaseMemoryChannel() = default;
  explicit BaseMemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore);
  explicit BaseMemoryChannel(const Semaphore& semaphore);

  DeviceHandle deviceHandle() const;
  /// Null if empty.
  const std::shared_ptr<MemoryDevice2DeviceSemaphore>& semaphore() const noexcept { return semaphore_; }

 protected:
  std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore_;
};

/// Data and synchronisation. Keeps its memories registered and mapped.
class MemoryChannel : public BaseMemoryChannel {
 public:
  using DeviceHandle = MemoryChannelHandle;

  MemoryChannel() = default;
  /// `dst` is the peer's memory, mapped here; if it was registered by another rank of this process and passed without
  /// serialisation, it becomes accessible to the current device. `src` is this rank's memory. `packetBuffer` is this
  /// rank's memory into which the peer puts packets, and may be null if none are received. Throws Error(InvalidUsage)
  /// if `dst` is not mapped.
  MemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore, RegisteredMemory dst, RegisteredMemory src,
                void* packetBuffer = nullptr);
  MemoryChannel(const Semaphore& semaphore, RegisteredMemory dst, RegisteredMemory src, void* packetBuffer = nullptr);

  DeviceHandle deviceHandle() const;
  const RegisteredMemory& dst() const noexcept { return dst_; }
  const RegisteredMemory& src() const noexcept { return src_; }

 private:
  RegisteredMemory dst_;
  RegisteredMemory src_;
  void* packetBuffer_ = nullptr;
};

using SmChannel [[deprecated("use MemoryChannel")]] = MemoryChannel;

}  // namespace mscclpp
