// The CUDA headers, and whether they know multicast objects.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "mscclpp/host/gpu.hpp"

/// Whether the CUDA headers have what switch channels need; whether the machine has it says isNvlsSupported().
#if CUDART_VERSION >= 12030
#define CUDA_NVLS_API_AVAILABLE 1
#else
#define CUDA_NVLS_API_AVAILABLE 0
#endif
