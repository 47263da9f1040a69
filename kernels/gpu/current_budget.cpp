// The multiprocessors of the current GPU, and its budget.
#include <algorithm>

#include "host/cuda/gpu_backend.hpp"
#include "kernels/gpu/attribute.hpp"
#include "kernels/gpu/stream_events.hpp"
#include "kernels/gpu_budget.hpp"

namespace mscclpp::kernels::gpu {

int multiprocessors() {
  return attribute(cudaDevAttrMultiProcessorCount);
}

std::shared_ptr<GpuBudget> currentBudget() {
  return GpuBudget::of(mscclpp::detail::currentGpu(), [] {
    // Two are for kernels of one block that have no share, the barriers of movers that users make.
    return std::make_shared<GpuBudget>(std::max(multiprocessors() - 2, 4), streamEvents());
  });
}

}  // namespace mscclpp::kernels::gpu
