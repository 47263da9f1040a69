// What the C API needs of the CUDA runtime.
#include <cuda_runtime_api.h>

#include "kernels/nccl/device.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::nccl::gpu {

namespace {

/// An event for one dependency between streams. Destroying it leaves the dependency in place.
class Event {
 public:
  Event() { MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) const { MSCCLPP_CUDATHROW(cudaEventRecord(event_, stream)); }
  void orderBefore(cudaStream_t stream) const { MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream, event_, 0)); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

bool isBuilt() {
  return true;
}

int currentDevice() {
  int device = noDevice;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  return device;
}

void setDevice(int device) {
  MSCCLPP_CUDATHROW(cudaSetDevice(device));
}

void waitForCurrentDevice() {
  const AvoidCudaGraphCaptureGuard guard;
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
}

std::shared_ptr<void> allocate(std::size_t bytes) {
  const AvoidCudaGraphCaptureGuard guard;
  return GpuBuffer<>(bytes).memory();
}

void waitForStreams(cudaStream_t stream, std::span<const cudaStream_t> others) {
  for (const cudaStream_t other : others) {
    if (other == stream) continue;
    const Event event;
    event.record(other);
    event.orderBefore(stream);
  }
}

void letStreamsWait(std::span<const cudaStream_t> others, cudaStream_t stream) {
  const Event event;
  event.record(stream);
  for (const cudaStream_t other : others) {
    if (other != stream) event.orderBefore(other);
  }
}

void recordEvent(cudaEvent_t event, cudaStream_t stream) {
  MSCCLPP_CUDATHROW(cudaEventRecord(event, stream));
}

bool isCapturing(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  static_cast<void>(cudaGetLastError());
  // The default stream, while a stream that synchronises with it captures: it does not capture itself.
  return error != cudaErrorStreamCaptureImplicit;
}

}  // namespace mscclpp::nccl::gpu
