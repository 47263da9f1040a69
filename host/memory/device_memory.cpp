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

void zeroMemory(const Device& device, void* data, std::size_t bytes) {
  if (device.type == DeviceType::GPU) {
    zeroGpuMemory(data, bytes);
  } else {
    std::memset(data, 0, bytes);
  }
}

}  // namespace mscclpp::detail
