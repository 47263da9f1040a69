// Runs the pushers on a GPU.
#include <memory>

#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "run.hpp"

namespace mscclpp::bench {

namespace {

template <class Body>
__global__ void push(const __grid_constant__ Body body) {
  body(0, gpu::Grid());
}

struct GpuThreads {
  static constexpr int warpWidth = 32;
  Device type = DeviceType::GPU;

  std::shared_ptr<void> allocate(std::size_t bytes) const { return {detail::gpuCalloc(bytes), detail::gpuFree}; }
  template <class Body>
  void launch(int blocks, int threads, const Body& body) const {
    push<<<blocks, threads>>>(body);
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  }
  std::uint64_t load(const std::uint64_t* word) const {
    std::uint64_t value = 0;
    gpuMemcpy(&value, word, 1);
    return value;
  }
};

}  // namespace

Result runOnGpu(const BenchmarkCase& benchmarkCase) {
  GpuThreads threads;
  return runCase(threads, benchmarkCase);
}

std::string gpuName() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return {};
  cudaDeviceProp properties{};
  MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, 0));
  return properties.name;
}

}  // namespace mscclpp::bench
