// Which process may free GPU resources: a forked child has only copies of what its parent made.
#pragma once

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::detail {

/// Records this process as the owner, unless there is one. Called after a CUDA call has succeeded; cheap.
void setGpuOwner() noexcept;

/// False in a child that was forked from the owner. CUDA does not work there: its calls fail, or wait for locks that
/// another thread held at the fork.
bool isGpuOwner() noexcept;

/// For destructors: calls `free` with `device` current (-1: whichever is) where calls are legal even if the thread
/// captures a graph; in a forked child it does nothing. Errors are ignored: at process exit the runtime may already be
/// unloaded, and the resource with it.
template <class Free>
void freeOnGpu(int device, const Free& free) noexcept {
  if (!isGpuOwner()) return;
  try {
    AvoidCudaGraphCaptureGuard captureGuard;
    CudaDeviceGuard deviceGuard(device);
    free();
  } catch (const BaseError&) {
  }
}

}  // namespace mscclpp::detail
