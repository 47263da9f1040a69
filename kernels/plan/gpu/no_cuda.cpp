// The GPU interpreters of a build without CUDA: there is no GPU backend that would call them.
#include "kernels/plan/interpreters.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels::gpu {

void interpret(DataType, const PlanLaunch&, const plan::ExecutionArgs&) {
  throw Error("Executor: this build is without CUDA", ErrorCode::InvalidUsage);
}

void copyAsync(void*, const void*, std::size_t, CUstream_st*) {
  throw Error("Executor: this build is without CUDA", ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::kernels::gpu
