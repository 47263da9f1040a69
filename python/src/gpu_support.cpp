#include "gpu_support.hpp"

#include <utility>

#include "mscclpp/host/cuda/gpu_buffer.hpp"

namespace mscclpp::python {

GpuAllocation allocateGpuMemory(std::size_t bytes, GpuBufferGranularity granularity) {
  auto [memory, allocated, deviceId] =
      detail::allocateShareable(bytes, granularity == GpuBufferGranularity::MultiCastMinimum
                                           ? mscclpp::GpuBufferGranularity::MultiCastMinimum
                                           : mscclpp::GpuBufferGranularity::MultiCastRecommended);
  return {std::move(memory), allocated, deviceId};
}

bool nvlsSupported() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 && isNvlsSupported();
}

bool bulkSupported() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 && isBulkSupported();
}

}  // namespace mscclpp::python
