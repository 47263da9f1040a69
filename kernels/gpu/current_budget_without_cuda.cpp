// Replaces current_budget.cpp in a build without the CUDA toolkit.
#include "kernels/gpu_budget.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels::gpu {

namespace {

[[noreturn]] void throwWithoutCuda() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace

int multiprocessors() {
  throwWithoutCuda();
}
std::shared_ptr<GpuBudget> currentBudget() {
  throwWithoutCuda();
}

}  // namespace mscclpp::kernels::gpu
