// Scope guards for CUDA state, and an owning stream.
#pragma once

#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp {

/// Makes a device current for a scope. A negative id changes nothing.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int deviceId);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  int previous_ = -1;
};

/// Allows a scope to make calls, such as allocations, that would break a stream capture active in this thread.
class AvoidCudaGraphCaptureGuard {
 public:
  AvoidCudaGraphCaptureGuard();
  ~AvoidCudaGraphCaptureGuard();
  AvoidCudaGraphCaptureGuard(const AvoidCudaGraphCaptureGuard&) = delete;
  AvoidCudaGraphCaptureGuard& operator=(const AvoidCudaGraphCaptureGuard&) = delete;

 private:
  cudaStreamCaptureMode previous_;
};

/// A stream that is destroyed with its owner. Move-only.
class CudaStreamWithFlags {
 public:
  CudaStreamWithFlags() = default;
  /// A stream of the current device; `flags` as for cudaStreamCreateWithFlags.
  explicit CudaStreamWithFlags(unsigned int flags) { set(flags); }
  CudaStreamWithFlags(CudaStreamWithFlags&& other) noexcept;
  CudaStreamWithFlags& operator=(CudaStreamWithFlags&& other) noexcept;
  ~CudaStreamWithFlags();

  /// Creates the stream. Throws Error(InvalidUsage) if there is one already.
  void set(unsigned int flags);
  bool empty() const noexcept { return stream_ == nullptr; }
  operator cudaStream_t() const noexcept { return stream_; }  // NOLINT: implicit, so that it is used as a stream
  /// The stream's device; -1 if empty.
  int deviceId() const noexcept { return deviceId_; }

 private:
  cudaStream_t stream_ = nullptr;
  int deviceId_ = -1;
};

}  // namespace mscclpp
