// 09 on GPUs, one rank per GPU.
#include "gpu_example.hpp"
#include "mscclpp/clock_sync.cuh"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "step.hpp"

using namespace mscclpp;

namespace {

constexpr int threads = 288;  // the last warp of each block waits and signals for the others

__global__ void __launch_bounds__(threads) stepKernel(const __grid_constant__ example::Step step) {
  example::runStep(gpu::Grid(), step);
}

struct Gpu {
  static constexpr DeviceType type = DeviceType::GPU;
  static constexpr Transport transport = Transport::CudaIpc;
  static constexpr int blocks = 8;
  std::function<void(ClockSync*)> launchClockSync = launchClockSyncOnGpu;

  template <class T>
  std::shared_ptr<T> allocate(std::size_t n) const {
    return GpuBuffer<T>(n).memory();
  }
  void run(const example::Step& step) const {
    stepKernel<<<blocks, threads>>>(step);
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  }
  std::vector<float> read(const float* from, std::size_t n) const {
    std::vector<float> values(n);
    gpuMemcpy<float>(values.data(), from, n);
    return values;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "09_tracing_gpu.json";
  return example::runOnGpus(2, 8, argc, argv, [&](ProcessGroup& group) { example::runRank(group, Gpu{}, path); });
}
