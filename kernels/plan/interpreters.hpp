// The compiled interpreters of plans, one for each type of elements.
#pragma once

#include <cstddef>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/plan/execution.hpp"

struct CUstream_st;

namespace mscclpp::kernels {

/// How a plan is started.
struct PlanLaunch {
  int blocks;
  int threads;  ///< per block, on GPUs: rounded down to what the kernel allows
  std::size_t sharedBytes;
  CUstream_st* stream;
  KernelStart start;  ///< on GPUs
};

namespace cpu {

/// Executes the blocks of a plan on threads of this process, the first on the calling one; returns when all have ended.
void interpret(DataType type, const PlanLaunch& launch, const plan::ExecutionArgs& args);

}  // namespace cpu

namespace gpu {

/// Enqueues the interpreter. Throws CudaError if CUDA rejects the launch.
void interpret(DataType type, const PlanLaunch& launch, const plan::ExecutionArgs& args);
/// Enqueues a copy in the memory of the device.
void copyAsync(void* to, const void* from, std::size_t bytes, CUstream_st* stream);

}  // namespace gpu

}  // namespace mscclpp::kernels
