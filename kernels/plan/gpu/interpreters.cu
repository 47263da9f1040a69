// The interpreters of plans on GPUs.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/plan/interpreters.hpp"
#include "mscclpp/arch/launch.hpp"
#include "mscclpp/arch/pass.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/kernel.cuh"
#include "mscclpp/plan/interpreter.hpp"

namespace mscclpp::kernels::gpu {

namespace {

/// Enough to saturate a link, with registers for loads of several packs.
constexpr int maxThreads = 512;

template <class T>
__global__ void __launch_bounds__(maxThreads, 1) interpretKernel(const __grid_constant__ plan::ExecutionArgs args) {
  if constexpr (arch::devicePass) {
    plan::interpret<T>(mscclpp::gpu::LinearGrid(), args, [] {
      arch::waitForPrerequisites();
      arch::launchDependents();
    });
  }
}

}  // namespace

void interpret(DataType type, const PlanLaunch& launch, const plan::ExecutionArgs& args) {
  using Kernel = void (*)(plan::ExecutionArgs);
  const Kernel kernel = visit(
      type, [](auto tag) -> Kernel { return interpretKernel<typename decltype(tag)::Type>; },
      []() -> Kernel { return nullptr; });
  MSCCLPP_CUDATHROW(mscclpp::detail::allowSharedMemory(kernel, launch.sharedBytes));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
  config.blockDim = dim3(static_cast<unsigned>(std::clamp(launch.threads / 32 * 32, 32, maxThreads)));
  config.dynamicSmemBytes = launch.sharedBytes;
  config.stream = launch.stream;
  cudaLaunchAttribute overlap[1] = {};
  overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = overlap;
  config.numAttrs = launch.start == KernelStart::Early ? 1 : 0;
  MSCCLPP_CUDATHROW(cudaLaunchKernelEx(&config, kernel, args));
}

void copyAsync(void* to, const void* from, std::size_t bytes, CUstream_st* stream) {
  MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

}  // namespace mscclpp::kernels::gpu
