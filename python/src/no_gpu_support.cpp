#include "gpu_support.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::python {

GpuAllocation allocateGpuMemory(std::size_t, GpuBufferGranularity) {
  throw Error(
      "this build of mscclpp has no CUDA, so it cannot allocate GPU memory: install it where nvcc is found, or "
      "use HostBuffer on CPU ranks",
      ErrorCode::InvalidUsage);
}

std::string gpuArchitecture() {
  return {};
}

std::shared_ptr<CUstream_st> makeStream() {
  throw Error(
      "this build of mscclpp has no CUDA: install it where nvcc is found, or use device_type=mscclpp.DeviceType.CPU",
      ErrorCode::InvalidUsage);
}

void synchronizeDevice() {}

bool nvlsSupported() {
  return false;
}
bool bulkSupported() {
  return false;
}

}  // namespace mscclpp::python
