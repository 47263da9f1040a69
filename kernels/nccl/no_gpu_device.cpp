// Replaces gpu_device.cpp in a build without the CUDA toolkit.
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl::gpu {

bool isBuilt() {
  return false;
}
int currentDevice() {
  throwInvalidUsage(absent);
}
void setDevice(int /*device*/) {
  throwInvalidUsage(absent);
}
void waitForCurrentDevice() {
  throwInvalidUsage(absent);
}
std::shared_ptr<void> allocate(std::size_t /*bytes*/) {
  throwInvalidUsage(absent);
}
void waitForStreams(cudaStream_t /*stream*/, std::span<const cudaStream_t> /*others*/) {
  throwInvalidUsage(absent);
}
void letStreamsWait(std::span<const cudaStream_t> /*others*/, cudaStream_t /*stream*/) {
  throwInvalidUsage(absent);
}
void recordEvent(cudaEvent_t /*event*/, cudaStream_t /*stream*/) {
  throwInvalidUsage(absent);
}
bool isCapturing(cudaStream_t /*stream*/) noexcept {
  return false;
}

}  // namespace mscclpp::nccl::gpu
