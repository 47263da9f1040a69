#include "mscclpp/host/cuda/gpu.hpp"

#include <string>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace detail {

namespace {

std::string callSite(const char* call, const char* file, int line) {
  return std::string(call) + " at " + file + ":" + std::to_string(line);
}

}  // namespace

std::string cudaErrorText(int error) {
  return ::cudaGetErrorString(static_cast<cudaError_t>(error));
}

std::string cuErrorText(int error) {
  const char* text = nullptr;
  try {
    static const auto getErrorString = loadGetErrorString();
    getErrorString(static_cast<CUresult>(error), &text);
  } catch (const BaseError&) {  // no driver: then only the number is known
  }
  return text == nullptr ? std::string() : text;
}

void throwOnError(cudaError_t result, const char* call, const char* file, int line) {
  if (result == cudaSuccess) return;
  ::cudaGetLastError();  // clears the error, so that a later, unrelated check does not return it again
  throw CudaError(callSite(call, file, line), result);
}

void throwOnError(CUresult result, const char* call, const char* file, int line) {
  if (result == CUDA_SUCCESS) return;
  throw CuError(callSite(call, file, line), result);
}

int currentGpu() {
  int device = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  return device;
}

void checkGpu(int device) {
  int count = 0;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count) {
    throw Error("there is no GPU " + std::to_string(device) + " among " + std::to_string(count),
                ErrorCode::InvalidUsage);
  }
}

int gpuOf(const void* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // no driver or no device: then it is not GPU memory
    return -1;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged ? attributes.device : -1;
}

}  // namespace detail

bool isBulkSupported() {
  int major = 0;
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, detail::currentGpu()));
  return major >= 9;
}

bool isCuMemMapAllocated(void* pointer) {
  const auto& driver = detail::driver();
  CUmemGenericAllocationHandle handle;
  if (driver.memRetainAllocationHandle(&handle, pointer) != CUDA_SUCCESS) return false;
  MSCCLPP_CUTHROW(driver.memRelease(handle));
  return true;
}

}  // namespace mscclpp
