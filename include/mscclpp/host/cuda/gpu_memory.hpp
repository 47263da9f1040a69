// Zero-filled memory for GPUs, and blocking copies. All functions work while a stream of the caller is being captured.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp {

namespace detail {

/// Zero-filled memory of the current device (cudaMalloc), pinned host memory that every device can use at the same
/// address, and memory of the current device that can be exported as a POSIX descriptor (cuMemCreate; `bytes` is
/// rounded up to `granularity`, 0: the device's). Null for 0 bytes. Each has its own function to free it.
void* gpuCalloc(std::size_t bytes);
void* gpuCallocHost(std::size_t bytes, unsigned int flags = cudaHostAllocPortable | cudaHostAllocMapped);
void* gpuCallocPhysical(std::size_t bytes, std::size_t granularity = 0, std::size_t alignment = 0);
/// Wait until the device no longer uses the memory, and never throw.
void gpuFree(void* pointer) noexcept;
void gpuFreeHost(void* pointer) noexcept;
void gpuFreePhysical(void* pointer) noexcept;

template <void (*free)(void*) noexcept>
struct DeleterBy {
  void operator()(const void* pointer) const noexcept { free(const_cast<void*>(pointer)); }
};
template <typename T = void>
struct GpuDeleter : DeleterBy<gpuFree> {};
template <typename T = void>
struct GpuHostDeleter : DeleterBy<gpuFreeHost> {};
template <typename T = void>
struct GpuPhysicalDeleter : DeleterBy<gpuFreePhysical> {};

template <typename T>
using UniqueGpuPtr = std::unique_ptr<T, GpuDeleter<T>>;
template <typename T>
using UniqueGpuHostPtr = std::unique_ptr<T, GpuHostDeleter<T>>;
template <typename T>
using UniqueGpuPhysicalPtr = std::unique_ptr<T, GpuPhysicalDeleter<T>>;

/// Throws Error(InvalidUsage) if the product overflows.
std::size_t bytesOf(std::size_t nelems, std::size_t elementBytes);

template <typename T>
UniqueGpuPtr<T> gpuCallocUnique(std::size_t nelems = 1) {
  return UniqueGpuPtr<T>(static_cast<T*>(gpuCalloc(bytesOf(nelems, sizeof(T)))));
}
template <typename T>
UniqueGpuHostPtr<T> gpuCallocHostUnique(std::size_t nelems = 1,
                                        unsigned int flags = cudaHostAllocPortable | cudaHostAllocMapped) {
  return UniqueGpuHostPtr<T>(static_cast<T*>(gpuCallocHost(bytesOf(nelems, sizeof(T)), flags)));
}
template <typename T>
UniqueGpuPhysicalPtr<T> gpuCallocPhysicalUnique(std::size_t nelems = 1, std::size_t granularity = 0,
                                                std::size_t alignment = 0) {
  return UniqueGpuPhysicalPtr<T>(
      static_cast<T*>(gpuCallocPhysical(bytesOf(nelems, sizeof(T)), granularity, alignment)));
}
template <typename T>
std::shared_ptr<T> gpuCallocShared(std::size_t nelems = 1) {
  return gpuCallocUnique<T>(nelems);
}
template <typename T>
std::shared_ptr<T> gpuCallocHostShared(std::size_t nelems = 1,
                                       unsigned int flags = cudaHostAllocPortable | cudaHostAllocMapped) {
  return gpuCallocHostUnique<T>(nelems, flags);
}
template <typename T>
std::shared_ptr<T> gpuCallocPhysicalShared(std::size_t nelems = 1, std::size_t granularity = 0,
                                           std::size_t alignment = 0) {
  return gpuCallocPhysicalUnique<T>(nelems, granularity, alignment);
}

/// Gives the current device access to [base, base + bytes) of cuMem memory, which must be one whole mapping.
void setReadWriteMemoryAccess(void* base, std::size_t bytes);
/// The device that owns the memory of a pointer; -1 for host memory.
int gpuIdFromAddress(void* pointer);
/// Granularity in bytes of cuMem allocations of the current device.
std::size_t getCuAllocationGranularity(CUmemAllocationGranularity_flags flags);
/// The same for memory that a multicast object of all devices may map. Throws Error(InvalidUsage) unless
/// isNvlsSupported().
std::size_t getMulticastGranularity(std::size_t bytes, CUmulticastGranularity_flags flags);

void gpuMemcpyBytes(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind);

}  // namespace detail

/// Copies `nelems` elements; complete on return. Not ordered with other streams, so synchronise these first.
template <typename T = char>
void gpuMemcpy(T* dst, const T* src, std::size_t nelems, cudaMemcpyKind kind = cudaMemcpyDefault) {
  detail::gpuMemcpyBytes(dst, src, detail::bytesOf(nelems, sizeof(T)), kind);
}

/// Starts the same copy on a stream.
template <typename T = char>
void gpuMemcpyAsync(T* dst, const T* src, std::size_t nelems, cudaStream_t stream,
                    cudaMemcpyKind kind = cudaMemcpyDefault) {
  MSCCLPP_CUDATHROW(cudaMemcpyAsync(dst, src, detail::bytesOf(nelems, sizeof(T)), kind, stream));
}

/// Sets `bytes` bytes of GPU memory to `value`; complete on return.
void gpuMemset(void* pointer, int value, std::size_t bytes);

}  // namespace mscclpp
