#include "mscclpp/host/proxy/fifo.hpp"

#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp::detail {

namespace {

constexpr std::size_t lineBytes = 128;  // adjacent-line prefetchers fetch pairs of cache lines

std::shared_ptr<void> allocateHostMemory(const Device& device, std::size_t bytes) {
  if (device.type == DeviceType::GPU) return allocateGpuVisibleHostMemory(bytes);
  void* memory = ::operator new (bytes, std::align_val_t{lineBytes});
  std::memset(memory, 0, bytes);
  return {memory, [](void* returned) { ::operator delete (returned, std::align_val_t{lineBytes}); }};
}

std::shared_ptr<void> allocateDeviceMemory(const Device& device, std::size_t bytes) {
  if (device.type != DeviceType::GPU) return allocateHostMemory(device, bytes);
  return allocatePrivateGpuMemory(device.id < 0 ? currentGpu() : device.id, bytes);
}

const FifoOptions& checked(const FifoOptions& options) {
  if (options.size < 1 || (options.size & (options.size - 1)) != 0) {
    throw Error("Fifo: the size must be a power of two, but it is " + std::to_string(options.size),
                ErrorCode::InvalidUsage);
  }
  if (options.popsPerTailUpdate < 1 || options.popsPerTailUpdate > options.size) {
    throw Error(
        "Fifo: popsPerTailUpdate must be from 1 to the size, but it is " + std::to_string(options.popsPerTailUpdate),
        ErrorCode::InvalidUsage);
  }
  if (options.device.type == DeviceType::Unknown) {
    throw Error("Fifo: the device must be DeviceType::CPU or DeviceType::GPU", ErrorCode::InvalidUsage);
  }
  return options;
}

}  // namespace

FifoMemory::FifoMemory(const FifoOptions& options, std::size_t slotBytes)
    : monitor_(options.monitor),
      waitTimeout_(static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(env()->waitTimeout).count())) {
  const std::size_t bytesOfSlots = static_cast<std::size_t>(checked(options).size) * slotBytes;
  const std::size_t tailAt = (bytesOfSlots + lineBytes - 1) / lineBytes * lineBytes;
  auto memory = allocateHostMemory(options.device, tailAt + lineBytes);
  auto* bytes = static_cast<std::byte*>(memory.get());
  slots_ = memory;
  tail_ = reinterpret_cast<std::uint64_t*>(bytes + tailAt);
  auto counters = allocateDeviceMemory(options.device, 2 * lineBytes);
  counters_ = {counters, static_cast<std::uint64_t*>(counters.get())};
}

WaitControl* FifoMemory::waitControl() const noexcept {
  return monitor_ ? monitor_->deviceControl() : nullptr;
}

}  // namespace mscclpp::detail
