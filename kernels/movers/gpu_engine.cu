// The engine of a mover on GPUs: copies by copy engines, and the barrier's kernel, enqueued on streams.
#include <cuda_runtime.h>

#include <vector>

#include "host/cuda/gpu_owner.hpp"
#include "kernels/movers/engine.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective_kernel.cuh"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::kernels {

namespace {

constexpr auto barrierKernel = collectiveKernel<MoverBarrier, MoverBarrier::None, MoverBarrier::None>;

/// A stream beside the caller's, which a call leaves and rejoins by events, so that captures include it.
class SideStream {
 public:
  SideStream() : stream_(cudaStreamNonBlocking) {
    MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming));
    const cudaError_t error = cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming);
    if (error != cudaSuccess) static_cast<void>(cudaEventDestroy(forked_));
    MSCCLPP_CUDATHROW(error);
  }
  ~SideStream() {
    detail::freeOnGpu(stream_.deviceId(), [&] {
      static_cast<void>(cudaEventDestroy(joined_));
      static_cast<void>(cudaEventDestroy(forked_));
    });
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  /// A copy that runs after what is in `from` now.
  void copyAfter(cudaStream_t from, void* to, const void* source, std::size_t bytes) {
    MSCCLPP_CUDATHROW(cudaEventRecord(forked_, from));
    MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream_, forked_, 0));
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, source, bytes, cudaMemcpyDeviceToDevice, stream_));
    MSCCLPP_CUDATHROW(cudaEventRecord(joined_, stream_));
  }
  /// What is enqueued in `to` from now on runs after the copy.
  void join(cudaStream_t to) const { MSCCLPP_CUDATHROW(cudaStreamWaitEvent(to, joined_, 0)); }

 private:
  CudaStreamWithFlags stream_;
  cudaEvent_t forked_ = nullptr;
  cudaEvent_t joined_ = nullptr;
};

class GpuEngine final : public Engine {
 public:
  GpuEngine(const MoverBarrier::Args& barrier, int copiesPerTransfer) : barrier_(barrier) {
    for (int i = 0; i < copiesPerTransfer; ++i) sides_.push_back(std::make_unique<SideStream>());
    // Loads the kernel: in a capture that could make calls which the capture rejects.
    cudaFuncAttributes attributes;
    MSCCLPP_CUDATHROW(cudaFuncGetAttributes(&attributes, barrierKernel));
  }

  void begin(CUstream_st* stream) override {
    stream_ = stream;
    hasLocalCopy_ = false;
  }

  bool barrier() override {
    // Without programmatic dependent launch: the kernel must not start before the copies are complete.
    barrierKernel<<<1, MoverBarrier::maxBlockThreads, 0, stream_>>>(barrier_, {}, {});
    MSCCLPP_CUDATHROW(cudaGetLastError());
    return true;  // not known before the kernel has run
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    // The first part is in the caller's stream; side stream 0 is for the local copy.
    const auto part = [&](std::size_t i) { return evenPart(bytes, sides_.size(), i); };
    for (std::size_t i = 1; i < sides_.size() && part(i).size() > 0; ++i) {
      sides_[i]->copyAfter(stream_, to + part(i).begin, from + part(i).begin, part(i).size());
    }
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, part(0).size(), cudaMemcpyDeviceToDevice, stream_));
    for (std::size_t i = 1; i < sides_.size() && part(i).size() > 0; ++i) sides_[i]->join(stream_);
  }

  void copyLocal(std::byte* to, const std::byte* from, std::size_t bytes) override {
    sides_[0]->copyAfter(stream_, to, from, bytes);
    hasLocalCopy_ = true;
  }

  void joinLocal() override {
    if (hasLocalCopy_) sides_[0]->join(stream_);
  }

 private:
  MoverBarrier::Args barrier_;
  std::vector<std::unique_ptr<SideStream>> sides_;
  cudaStream_t stream_ = nullptr;
  bool hasLocalCopy_ = false;
};

}  // namespace

std::unique_ptr<Engine> makeGpuEngine(const MoverBarrier::Args& barrier, int copiesPerTransfer) {
  return std::make_unique<GpuEngine>(barrier, copiesPerTransfer);
}

}  // namespace mscclpp::kernels
