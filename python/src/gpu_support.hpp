// What the bindings need of a GPU, with an implementation for builds without CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct CUstream_st;

namespace mscclpp::python {

struct GpuAllocation {
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;
  int deviceId = -1;
};

/// What the size is rounded up to if multicast may be used.
enum class GpuBufferGranularity { MultiCastMinimum, MultiCastRecommended };

/// Zero-filled memory of the current device that peers can map. Throws Error(InvalidUsage) in a build without CUDA,
/// else CudaError or CuError. Exported, for the PyTorch parts.
[[gnu::visibility("default")]] GpuAllocation allocateGpuMemory(std::size_t bytes, GpuBufferGranularity granularity);

/// That of the current device, with the features of this GPU only: "90a". Empty without a device.
std::string gpuArchitecture();

/// A stream of the current device that can be captured. Throws Error(InvalidUsage) without CUDA.
std::shared_ptr<CUstream_st> makeStream();

/// Waits for all work on the current device; does nothing without CUDA.
void synchronizeDevice();

bool nvlsSupported();
bool bulkSupported();

}  // namespace mscclpp::python
