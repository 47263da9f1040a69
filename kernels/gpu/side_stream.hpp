// A stream beside the caller's.
#pragma once

#include <cuda_runtime.h>

#include "host/cuda/gpu_owner.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::kernels {

/// A stream that a call leaves the caller's for and rejoins it from by events, so that captures include it.
class SideStream {
 public:
  SideStream() : stream_(cudaStreamNonBlocking) {
    MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming));
    const cudaError_t error = cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming);
    if (error != cudaSuccess) static_cast<void>(cudaEventDestroy(forked_));
    MSCCLPP_CUDATHROW(error);
  }
  ~SideStream() {
    mscclpp::detail::freeOnGpu(stream_.deviceId(), [&] {
      static_cast<void>(cudaEventDestroy(joined_));
      static_cast<void>(cudaEventDestroy(forked_));
    });
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// What is enqueued here from now on runs after what is in `from` now.
  void fork(cudaStream_t from) {
    MSCCLPP_CUDATHROW(cudaEventRecord(forked_, from));
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream_, forked_, 0));
  }
  /// What is enqueued in `to` from now on runs after what is here now.
  void join(cudaStream_t to) {
    MSCCLPP_CUDATHROW(cudaEventRecord(joined_, stream_));
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(to, joined_, 0));
  }

 private:
  CudaStreamWithFlags stream_;
  cudaEvent_t forked_ = nullptr;
  cudaEvent_t joined_ = nullptr;
};

}  // namespace mscclpp::kernels
