// A stream beside the caller's.
#pragma once

#include <cuda_runtime.h>

#include "kernels/gpu/stream_events.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::kernels {

/// A stream that a call leaves the caller's for and rejoins it from by events, so that captures include it.
class SideStream {
 public:
  SideStream() : stream_(cudaStreamNonBlocking) {}
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// What is enqueued here from now on runs after what is in `from` now.
  void fork(cudaStream_t from) { order(stream_, forked_, from); }
  /// What is enqueued in `to` from now on runs after what is here now.
  void join(cudaStream_t to) { order(to, joined_, stream_); }

 private:
  static void order(cudaStream_t later, const StreamEvents::Event& event, cudaStream_t earlier) {
    gpu::streamEvents().record(event, earlier);
    gpu::streamEvents().wait(later, event);
  }

  CudaStreamWithFlags stream_;
  StreamEvents::Event forked_ = gpu::streamEvents().make();
  StreamEvents::Event joined_ = gpu::streamEvents().make();
};

}  // namespace mscclpp::kernels
