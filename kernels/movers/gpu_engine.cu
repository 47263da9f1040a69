// The engine of a mover on GPUs: copies by copy engines, and the barrier's kernel, enqueued on streams.
#include <cuda_runtime.h>

#include <vector>

#include "kernels/gpu/side_stream.hpp"
#include "kernels/movers/engine.hpp"
#include "mscclpp/arch/pass.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

namespace {

/// In as few registers as the blocks of a GEMM leave on a multiprocessor: else it runs when the first of them end, and
/// the copies wait for it (measured: docs/copy_engines.md).
__global__ void __maxnreg__(1024 / MoverBarrier::maxBlockThreads)
    barrierKernel(const __grid_constant__ MoverBarrier::Args args) {
  if constexpr (arch::devicePass) MoverBarrier::run(mscclpp::gpu::LinearGrid(), args);
}

class GpuEngine final : public Engine {
 public:
  GpuEngine(const MoverBarrier::Args& barrier, int copiesPerTransfer) : barrier_(barrier) {
    for (int i = 0; i < copiesPerTransfer; ++i) sides_.push_back(std::make_unique<SideStream>());
    // Loads the kernel: in a capture that could make calls which the capture rejects.
    cudaFuncAttributes attributes;
    MSCCLPP_CUDATHROW(cudaFuncGetAttributes(&attributes, barrierKernel));
  }

  void use(CUstream_st* stream) override {
    stream_ = stream;
    hasLocalCopy_ = false;
  }

  bool barrier() override {
    // Without programmatic dependent launch: the kernel must not start before the copies are complete.
    barrierKernel<<<1, MoverBarrier::maxBlockThreads, 0, stream_>>>(barrier_);
    MSCCLPP_CUDATHROW(cudaGetLastError());
    return true;  // not known before the kernel has run
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    // The first part is in the caller's stream; side stream 0 is for the local copy.
    const auto part = [&](std::size_t i) { return evenPart(bytes, sides_.size(), i); };
    for (std::size_t i = 1; i < sides_.size() && part(i).size() > 0; ++i) {
      copyBeside(*sides_[i], to + part(i).begin, from + part(i).begin, part(i).size());
    }
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, part(0).size(), cudaMemcpyDeviceToDevice, stream_));
    for (std::size_t i = 1; i < sides_.size() && part(i).size() > 0; ++i) sides_[i]->join(stream_);
  }

  void copyLocal(std::byte* to, const std::byte* from, std::size_t bytes) override {
    copyBeside(*sides_[0], to, from, bytes);
    hasLocalCopy_ = true;
  }

  void joinLocal() override {
    if (hasLocalCopy_) sides_[0]->join(stream_);
  }

 private:
  void copyBeside(SideStream& side, std::byte* to, const std::byte* from, std::size_t bytes) {
    side.fork(stream_);
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, side.get()));
  }

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
