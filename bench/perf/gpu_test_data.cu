// Test data of GPU ranks.
#include <algorithm>

#include "data_tasks.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::perf {

namespace {

template <class Task>
__global__ void runTask(const __grid_constant__ Task task) {
  task(gpu::Grid());
}

struct CurrentDevice {
  template <class Task>
  static void run(const Task& task, std::size_t indices, CUstream_st* stream) {
    constexpr std::size_t threads = 256;
    constexpr std::size_t maxBlocks = 2048;
    const std::size_t blocks = std::clamp<std::size_t>((indices + threads - 1) / threads, 1, maxBlocks);
    runTask<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(task);
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }
};

}  // namespace

std::unique_ptr<TestData> makeGpuTestData() {
  return std::make_unique<TestDataOn<CurrentDevice>>();
}

}  // namespace mscclpp::perf
