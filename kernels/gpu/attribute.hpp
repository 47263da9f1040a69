// The numbers that CUDA states of the current GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace mscclpp::kernels::gpu {

/// An attribute of the current GPU. Throws CudaError.
int attribute(cudaDeviceAttr which);

}  // namespace mscclpp::kernels::gpu
