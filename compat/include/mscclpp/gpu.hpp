// The CUDA headers, and whether they support multicast objects.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "mscclpp/device.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

/// Whether the CUDA headers support switch channels; for the machine's support see isNvlsSupported().
#if CUDART_VERSION >= 12030
#define CUDA_NVLS_API_AVAILABLE 1
#else
#define CUDA_NVLS_API_AVAILABLE 0
#endif
