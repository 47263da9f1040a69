// Replaces current_budget.cpp in a build without the CUDA toolkit.
#include "kernels/gpu_budget.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels::gpu {

std::shared_ptr<GpuBudget> currentBudget() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::kernels::gpu
