#include "kernels/nccl/device.hpp"

#include <exception>

#include "kernels/nccl/result.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp::nccl {

DeviceType deviceType() {
  if (env()->ncclDevice == "cpu") return DeviceType::CPU;
  if (!gpu::isBuilt()) throwInvalidUsage(gpu::absent);
  return DeviceType::GPU;
}

int currentDevice() {
  return deviceType() == DeviceType::GPU ? gpu::currentDevice() : noDevice;
}

DeviceScope::DeviceScope(int device) {
  if (device == noDevice) return;
  const int current = gpu::currentDevice();
  if (current == device) return;
  gpu::setDevice(device);
  previous_ = current;
}

DeviceScope::~DeviceScope() {
  if (previous_ == noDevice) return;
  try {
    gpu::setDevice(previous_);
  } catch (const BaseError&) {  // the driver is unloading
  }
}

void waitForDevice(int device) noexcept {
  if (device == noDevice) return;
  try {
    const DeviceScope scope(device);
    gpu::waitForCurrentDevice();
  } catch (const std::exception&) {  // the device, or the driver at the end of the process, performs no more work
  }
}

std::shared_ptr<void> allocate(std::size_t bytes) {
  return deviceType() == DeviceType::GPU ? gpu::allocate(bytes) : HostBuffer(bytes, "ncclMemAlloc").memory();
}

void waitForStreams(cudaStream_t stream, std::span<const cudaStream_t> others) {
  if (deviceType() == DeviceType::GPU) gpu::waitForStreams(stream, others);
}
void letStreamsWait(std::span<const cudaStream_t> others, cudaStream_t stream) {
  if (deviceType() == DeviceType::GPU) gpu::letStreamsWait(others, stream);
}
void recordEvent(cudaEvent_t event, cudaStream_t stream) {
  if (deviceType() == DeviceType::GPU) gpu::recordEvent(event, stream);
}
bool isCapturing(cudaStream_t stream) noexcept {
  return deviceType() == DeviceType::GPU && gpu::isCapturing(stream);
}

}  // namespace mscclpp::nccl
