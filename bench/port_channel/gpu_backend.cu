// A rank on a GPU, over its copy engines.
#include <memory>

#include "backend.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"

namespace mscclpp::bench {

namespace {

template <class Body>
__global__ void runKernel(const __grid_constant__ Body body) {
  body(0, gpu::Grid());
}

class GpuBackend : public Backend {
 public:
  explicit GpuBackend(int index) : index_(index) {
    MSCCLPP_CUDATHROW(cudaSetDevice(index));
    elapsed_ = detail::gpuCallocShared<std::uint64_t>();
  }
  Device device() const override { return {DeviceType::GPU, index_}; }
  Transport transport() const override { return Transport::CudaIpc; }
  std::string description() const override {
    cudaDeviceProp properties{};
    MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, index_));
    return properties.name;
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return GpuBuffer<char>(bytes).memory(); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    gpuMemcpy(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    gpuMemcpy(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  }
  std::shared_ptr<std::uint64_t> allocateHostWord() override { return detail::gpuCallocHostShared<std::uint64_t>(); }
  double run(const PortChannelHandle& channel, const Workload& workload) override { return runAny(channel, workload); }
  double run(const WidePortChannelHandle& channel, const Workload& workload) override {
    return runAny(channel, workload);
  }

 private:
  template <class Channel>
  double runAny(const Channel& channel, const Workload& workload) {
    withKernel(channel, workload, elapsed_.get(), [](const auto& body) {
      runKernel<<<1, 32>>>(body);
      MSCCLPP_CUDATHROW(cudaGetLastError());
      MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    });
    std::uint64_t nanoseconds = 0;
    gpuMemcpy(&nanoseconds, elapsed_.get(), 1);
    return static_cast<double>(nanoseconds);
  }

  int index_;
  std::shared_ptr<std::uint64_t> elapsed_;
};

}  // namespace

std::unique_ptr<Backend> makeGpuBackend(int index) {
  return std::make_unique<GpuBackend>(index);
}

int gpuCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace mscclpp::bench
