#include <cuda_runtime_api.h>

#include "device.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::bench {

namespace {

class Gpu final : public RankDevice {
 public:
  explicit Gpu(int index) {
    MSCCLPP_CUDATHROW(cudaSetDevice(index));
    stream_.set(cudaStreamNonBlocking);
  }
  DeviceType type() const override { return DeviceType::GPU; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return GpuBuffer<>(bytes).memory(); }
  CUstream_st* stream() override { return stream_; }
  void synchronize() override { MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_)); }
  std::size_t usedBytes() override {
    std::size_t free = 0, total = 0;
    MSCCLPP_CUDATHROW(cudaMemGetInfo(&free, &total));
    return total - free;
  }

 private:
  CudaStreamWithFlags stream_;
};

}  // namespace

int gpuCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<RankDevice> makeGpu(int index) {
  return std::make_unique<Gpu>(index);
}

}  // namespace mscclpp::bench
