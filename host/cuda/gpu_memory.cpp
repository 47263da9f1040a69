#include "mscclpp/host/cuda/gpu_memory.hpp"

#include <cstdint>
#include <cstring>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "host/cuda/mapped_range.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp {

namespace detail {

namespace {

int attribute(CUdevice_attribute name, int device) {
  int value = 0;
  MSCCLPP_CUTHROW(driver().deviceGetAttribute(&value, name, device));
  return value;
}

CUmemAllocationProp shareableOn(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.allocFlags.gpuDirectRDMACapable =
      attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) != 0;
  return properties;
}

std::size_t roundUpChecked(std::size_t bytes, std::size_t granularity) {
  if (bytes > SIZE_MAX - granularity) throw Error("the size of GPU memory overflows", ErrorCode::InvalidUsage);
  return (bytes + granularity - 1) / granularity * granularity;
}

bool isShareableVirtualMemorySupported(int device) {
  return attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != 0 &&
         attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device) != 0;
}

}  // namespace

std::size_t bytesOf(std::size_t nelems, std::size_t elementBytes) {
  if (nelems > SIZE_MAX / elementBytes) throw Error("the size of GPU memory overflows", ErrorCode::InvalidUsage);
  return nelems * elementBytes;
}

void* gpuCalloc(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  AvoidCudaGraphCaptureGuard captureGuard;
  void* pointer = nullptr;
  MSCCLPP_CUDATHROW(cudaMalloc(&pointer, bytes));
  UniqueGpuPtr<void> owner(pointer);
  gpuMemset(pointer, 0, bytes);
  return owner.release();
}

void* gpuCallocHost(std::size_t bytes, unsigned int flags) {
  if (bytes == 0) return nullptr;
  AvoidCudaGraphCaptureGuard captureGuard;
  void* pointer = nullptr;
  MSCCLPP_CUDATHROW(cudaHostAlloc(&pointer, bytes, flags));
  std::memset(pointer, 0, bytes);
  return pointer;
}

void* gpuCallocPhysical(std::size_t bytes, std::size_t granularity, std::size_t alignment) {
  if (bytes == 0) return nullptr;
  AvoidCudaGraphCaptureGuard captureGuard;
  const std::size_t unit = getCuAllocationGranularity(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const std::size_t size = roundUpChecked(roundUpChecked(bytes, granularity == 0 ? unit : granularity), unit);
  const int device = currentGpu();
  const CUmemAllocationProp properties = shareableOn(device);
  CUmemGenericAllocationHandle created;
  MSCCLPP_CUTHROW(driver().memCreate(&created, size, &properties, 0));
  const PhysicalHandle handle(created);
  UniqueGpuPhysicalPtr<void> owner(mapPhysical(handle, size, alignment == 0 ? unit : alignment, device));
  gpuMemset(owner.get(), 0, size);
  return owner.release();
}

void gpuFree(void* pointer) noexcept {
  if (pointer == nullptr) return;
  freeOnGpu(-1, [&] { static_cast<void>(cudaFree(pointer)); });
}

void gpuFreeHost(void* pointer) noexcept {
  if (pointer == nullptr) return;
  freeOnGpu(-1, [&] { static_cast<void>(cudaFreeHost(pointer)); });
}

void gpuFreePhysical(void* pointer) noexcept {
  if (pointer == nullptr) return;
  freeOnGpu(-1, [&] {
    CudaDeviceGuard deviceGuard(gpuIdFromAddress(pointer));
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    MSCCLPP_CUTHROW(driver().memGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(pointer)));
    unmapPhysical(reinterpret_cast<void*>(base), bytes);
  });
}

void setReadWriteMemoryAccess(void* base, std::size_t bytes) {
  allowAccess(reinterpret_cast<CUdeviceptr>(base), bytes, currentGpu());
}

int gpuIdFromAddress(void* pointer) {
  cudaPointerAttributes attributes{};
  MSCCLPP_CUDATHROW(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
}

std::size_t getCuAllocationGranularity(CUmemAllocationGranularity_flags flags) {
  const CUmemAllocationProp properties = shareableOn(currentGpu());
  std::size_t granularity = 0;
  MSCCLPP_CUTHROW(driver().memGetAllocationGranularity(&granularity, &properties, flags));
  return granularity;
}

std::size_t getMulticastGranularity(std::size_t bytes, CUmulticastGranularity_flags flags) {
  if (!isNvlsSupported()) {
    throw Error("multicast is not available: the device lacks it, or the environment forbids it",
                ErrorCode::InvalidUsage);
  }
  CUmulticastObjectProp properties{};
  properties.size = bytes;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  MSCCLPP_CUDATHROW(cudaGetDeviceCount(reinterpret_cast<int*>(&properties.numDevices)));
  std::size_t granularity = 0;
  MSCCLPP_CUTHROW(multicastDriver().getGranularity(&granularity, &properties, flags));
  return granularity;
}

void gpuMemcpyBytes(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  AvoidCudaGraphCaptureGuard captureGuard;
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  MSCCLPP_CUDATHROW(cudaMemcpyAsync(dst, src, bytes, kind, stream));
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
}

namespace {

std::size_t shareableGranularity(std::size_t bytes, GpuBufferGranularity granularity) {
  if (isNvlsSupported()) {
    try {
      return getMulticastGranularity(bytes, granularity == GpuBufferGranularity::MultiCastMinimum
                                                ? CU_MULTICAST_GRANULARITY_MINIMUM
                                                : CU_MULTICAST_GRANULARITY_RECOMMENDED);
    } catch (const CuError&) {  // the GPU supports it, but the machine's fabric does not
    }
  }
  return getCuAllocationGranularity(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

}  // namespace

GpuAllocation allocateShareable(std::size_t bytes, GpuBufferGranularity granularity) {
  if (bytes == 0) return {};
  const int device = currentGpu();
  if (!isShareableVirtualMemorySupported(device)) {
    return {std::shared_ptr<void>(gpuCalloc(bytes), gpuFree), bytes, device};
  }
  const std::size_t unit = shareableGranularity(bytes, granularity);
  const std::size_t size = roundUpChecked(bytes, unit);
  return {std::shared_ptr<void>(gpuCallocPhysical(size, unit, unit), gpuFreePhysical), size, device};
}

std::shared_ptr<void> allocateGpuMemory(int device, std::size_t bytes) {
  checkGpu(device);
  CudaDeviceGuard deviceGuard(device);
  return allocateShareable(bytes, GpuBufferGranularity::MultiCastMinimum).memory;
}

void fillGpuMemory(void* data, int byte, std::size_t bytes) {
  CudaDeviceGuard deviceGuard(gpuIdFromAddress(data));
  gpuMemset(data, byte, bytes);
}

void writeGpuMemory(void* to, const void* from, std::size_t bytes) {
  gpuMemcpyBytes(to, from, bytes, cudaMemcpyHostToDevice);
}

void readGpuMemory(void* to, const void* from, std::size_t bytes) {
  gpuMemcpyBytes(to, from, bytes, cudaMemcpyDeviceToHost);
}

std::shared_ptr<void> allocatePrivateGpuMemory(int device, std::size_t bytes) {
  checkGpu(device);
  CudaDeviceGuard deviceGuard(device);
  return {gpuCalloc(bytes), gpuFree};
}

std::shared_ptr<void> allocateGpuVisibleHostMemory(std::size_t bytes) {
  return {gpuCallocHost(bytes), gpuFreeHost};
}

}  // namespace detail

void gpuMemset(void* pointer, int value, std::size_t bytes) {
  if (bytes == 0) return;
  AvoidCudaGraphCaptureGuard captureGuard;
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  MSCCLPP_CUDATHROW(cudaMemsetAsync(pointer, value, bytes, stream));
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
}

}  // namespace mscclpp
