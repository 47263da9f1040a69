#include "mscclpp/host/cuda/gpu_guard.hpp"

#include <unistd.h>

#include <atomic>
#include <utility>

#include "host/cuda/gpu_owner.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace detail {

namespace {
std::atomic<pid_t> gpuOwner = 0;  // 0: none
}

void setGpuOwner() noexcept {
  if (gpuOwner.load(std::memory_order_relaxed) != 0) return;
  pid_t none = 0;
  gpuOwner.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
}

bool isGpuOwner() noexcept {
  const pid_t owner = gpuOwner.load(std::memory_order_relaxed);
  return owner == 0 || owner == ::getpid();
}

}  // namespace detail

CudaDeviceGuard::CudaDeviceGuard(int deviceId) {
  if (deviceId < 0) return;
  int current = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&current));
  detail::setGpuOwner();
  if (current == deviceId) return;
  MSCCLPP_CUDATHROW(cudaSetDevice(deviceId));
  previous_ = current;
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (previous_ >= 0) static_cast<void>(cudaSetDevice(previous_));
}

AvoidCudaGraphCaptureGuard::AvoidCudaGraphCaptureGuard() : previous_(cudaStreamCaptureModeRelaxed) {
  MSCCLPP_CUDATHROW(cudaThreadExchangeStreamCaptureMode(&previous_));
  detail::setGpuOwner();
}

AvoidCudaGraphCaptureGuard::~AvoidCudaGraphCaptureGuard() {
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&previous_));
}

CudaStreamWithFlags::CudaStreamWithFlags(CudaStreamWithFlags&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)), deviceId_(std::exchange(other.deviceId_, -1)) {}

CudaStreamWithFlags& CudaStreamWithFlags::operator=(CudaStreamWithFlags&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(deviceId_, other.deviceId_);
  return *this;
}

CudaStreamWithFlags::~CudaStreamWithFlags() {
  // At process exit the runtime may already be unloaded, and the stream with it.
  if (!empty() && detail::isGpuOwner()) static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaStreamWithFlags::set(unsigned int flags) {
  if (!empty()) throw Error("CudaStreamWithFlags: there is a stream already", ErrorCode::InvalidUsage);
  int device = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream_, flags));
  detail::setGpuOwner();
  deviceId_ = device;
}

}  // namespace mscclpp
