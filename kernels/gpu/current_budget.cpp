// The budget of the current GPU.
#include <algorithm>

#include "host/cuda/gpu_backend.hpp"
#include "kernels/gpu/stream_events.hpp"
#include "kernels/gpu_budget.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels::gpu {

std::shared_ptr<GpuBudget> currentBudget() {
  const int device = mscclpp::detail::currentGpu();
  return GpuBudget::of(device, [&] {
    int multiprocessors = 0;
    MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    // Two are for kernels of one block that have no share, the barriers of movers that users make.
    return std::make_shared<GpuBudget>(std::max(multiprocessors - 2, 4), streamEvents());
  });
}

}  // namespace mscclpp::kernels::gpu
