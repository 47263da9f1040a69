// Memory channels: kernels read and write a peer's mapped memory. The owners; the device side is channel/memory.hpp.
#pragma once

#include <memory>

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/host/memory_semaphore.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/semaphore.hpp"

namespace mscclpp {

/// Synchronisation only.
class BaseMemoryChannel {
 public:
  using DeviceHandle = BaseMemoryChannelHandle;

  /// Stands for nothing: deviceHandle() throws Error(InvalidUsage).
  BaseMemoryChannel() = default;
  explicit BaseMemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore);
  explicit BaseMemoryChannel(const Semaphore& semaphore);

  DeviceHandle deviceHandle() const;

 protected:
  std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore_;
};

/// Data and synchronisation. Keeps its memories registered and mapped.
class MemoryChannel : public BaseMemoryChannel {
 public:
  using DeviceHandle = MemoryChannelHandle;

  MemoryChannel() = default;
  /// `dst` is the peer's memory, mapped here; what another rank of this process has registered, and handed over as it is,
  /// becomes accessible to the current device. `src` is this rank's. `packetBuffer` is this rank's memory into which the
  /// peer puts packets, and may be null if none are received. Throws Error(InvalidUsage) if `dst` is not mapped.
  MemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore, RegisteredMemory dst, RegisteredMemory src,
                void* packetBuffer = nullptr);
  MemoryChannel(const Semaphore& semaphore, RegisteredMemory dst, RegisteredMemory src, void* packetBuffer = nullptr);

  DeviceHandle deviceHandle() const;

 private:
  RegisteredMemory dst_;
  RegisteredMemory src_;
  void* packetBuffer_ = nullptr;
};

using SmChannel [[deprecated("use MemoryChannel")]] = MemoryChannel;

}  // namespace mscclpp
