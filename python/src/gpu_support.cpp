#include "gpu_support.hpp"

#include <utility>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"

namespace mscclpp::python {

GpuAllocation allocateGpuMemory(std::size_t bytes, GpuBufferGranularity granularity) {
  auto [memory, allocated, deviceId] =
      detail::allocateShareable(bytes, granularity == GpuBufferGranularity::MultiCastMinimum
                                           ? mscclpp::GpuBufferGranularity::MultiCastMinimum
                                           : mscclpp::GpuBufferGranularity::MultiCastRecommended);
  // Empty tensors have a device as well.
  return {std::move(memory), allocated, bytes == 0 ? detail::currentGpu() : deviceId};
}

std::shared_ptr<CUstream_st> makeStream() {
  cudaStream_t stream = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {stream, [](cudaStream_t each) { cudaStreamDestroy(each); }};
}

void synchronizeDevice() {
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
}

namespace {

bool hasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

}  // namespace

std::string gpuArchitecture() {
  if (!hasDevice()) return {};
  int device = 0, major = 0, minor = 0;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return std::to_string(10 * major + minor) + (major >= 9 ? "a" : "");
}

bool nvlsSupported() {
  return hasDevice() && isNvlsSupported();
}
bool bulkSupported() {
  return hasDevice() && isBulkSupported();
}

}  // namespace mscclpp::python
