#include "host/memory/device_memory.hpp"

#include <cstring>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp::detail {

namespace {

[[noreturn]] void unknownDevice() {
  throw Error("the device type must be DeviceType::CPU or DeviceType::GPU", ErrorCode::InvalidUsage);
}

}  // namespace

Transport localTransport(DeviceType type) {
  switch (type) {
    case DeviceType::CPU:
      return Transport::SharedMemory;
    case DeviceType::GPU:
      return Transport::CudaIpc;
    case DeviceType::Unknown:
      break;
  }
  unknownDevice();
}

std::shared_ptr<void> allocateSharedMemory(const Device& device, std::size_t bytes) {
  switch (device.type) {
    case DeviceType::CPU:
      return HostBuffer(bytes).memory();
    case DeviceType::GPU:
      return allocateGpuMemory(device.id < 0 ? currentGpu() : device.id, bytes);
    case DeviceType::Unknown:
      break;
  }
  unknownDevice();
}

std::shared_ptr<void> allocatePrivateMemory(const Device& device, std::size_t bytes) {
  if (device.type != DeviceType::GPU) return HostBuffer(bytes).memory();
  return allocatePrivateGpuMemory(device.id < 0 ? currentGpu() : device.id, bytes);
}

void fillMemory(const Device& device, void* data, int byte, std::size_t bytes) {
  if (device.type == DeviceType::GPU) {
    fillGpuMemory(data, byte, bytes);
  } else {
    std::memset(data, byte, bytes);
  }
}

void writeMemory(const Device& device, void* to, const void* from, std::size_t bytes) {
  if (device.type == DeviceType::GPU) {
    writeGpuMemory(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace mscclpp::detail
