#include "mscclpp/host/gpu_guard.hpp"

#include <utility>

#include "mscclpp/host/error.hpp"

namespace mscclpp {

CudaDeviceGuard::CudaDeviceGuard(int deviceId) {
  if (deviceId < 0) return;
  int current = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&current));
  if (current == deviceId) return;
  MSCCLPP_CUDATHROW(cudaSetDevice(deviceId));
  previous_ = current;
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (previous_ >= 0) static_cast<void>(cudaSetDevice(previous_));
}

AvoidCudaGraphCaptureGuard::AvoidCudaGraphCaptureGuard() : previous_(cudaStreamCaptureModeRelaxed) {
  MSCCLPP_CUDATHROW(cudaThreadExchangeStreamCaptureMode(&previous_));
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
  // At the end of the process the runtime may be gone already, and the stream with it.
  if (!empty()) static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaStreamWithFlags::set(unsigned int flags) {
  if (!empty()) throw Error("CudaStreamWithFlags: there is a stream already", ErrorCode::InvalidUsage);
  int device = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream_, flags));
  deviceId_ = device;
}

}  // namespace mscclpp
