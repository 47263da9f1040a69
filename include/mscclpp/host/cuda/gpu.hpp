// The CUDA headers, and failed CUDA calls as exceptions.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace mscclpp::detail {

/// Throw CudaError or CuError unless the call succeeded. `call` is its text.
void throwOnError(cudaError_t result, const char* call, const char* file, int line);
void throwOnError(CUresult result, const char* call, const char* file, int line);

}  // namespace mscclpp::detail

/// Evaluates a call of the CUDA runtime; throws mscclpp::CudaError with the call, its source location and CUDA's error
/// text.
#define MSCCLPP_CUDATHROW(cmd) ::mscclpp::detail::throwOnError(static_cast<cudaError_t>(cmd), #cmd, __FILE__, __LINE__)
/// Evaluates a call of the CUDA driver; throws mscclpp::CuError likewise.
#define MSCCLPP_CUTHROW(cmd) ::mscclpp::detail::throwOnError(static_cast<CUresult>(cmd), #cmd, __FILE__, __LINE__)

namespace mscclpp {

/// Whether multicast (NVLS) may be used on the current device: it supports it, and neither MSCCLPP_FORCE_DISABLE_NVLS
/// nor NCCL_NVLS_ENABLE=0 disables it.
bool isNvlsSupported();
/// Whether the current device supports bulk asynchronous copies (compute capability 9.0 and later).
bool isBulkSupported();
/// Whether `pointer` is memory of the virtual memory management API (cuMemMap).
bool isCuMemMapAllocated(void* pointer);

}  // namespace mscclpp
