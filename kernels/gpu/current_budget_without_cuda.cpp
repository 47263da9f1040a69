// Replaces current_budget.cpp in a build without the CUDA toolkit.
#include "host/cuda/no_cuda.hpp"
#include "kernels/gpu_budget.hpp"

namespace mscclpp::kernels::gpu {

int multiprocessors() {
  mscclpp::detail::noCuda();
}
std::shared_ptr<GpuBudget> currentBudget() {
  mscclpp::detail::noCuda();
}

}  // namespace mscclpp::kernels::gpu
