// What the host part needs of CUDA. Implemented in host/cuda/; without_cuda.cpp stands in where there is no toolkit.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "connection_base.hpp"
#include "memory_transport.hpp"
#include "staged_copies.hpp"

namespace mscclpp::detail {

/// What cudaGetErrorString and cuGetErrorString say of a number; empty where there is nobody to ask.
std::string cudaErrorText(int error);
std::string cuErrorText(int error);

/// The device that is current in this thread.
int currentGpu();
/// Throws Error(InvalidUsage) unless there is such a device.
void checkGpu(int device);
/// The GPU that the memory belongs to; -1 for host memory, and wherever there are no GPUs.
int gpuOf(const void* data);

/// Zero-filled memory of a GPU that can be registered with CudaIpc.
std::shared_ptr<void> allocateGpuMemory(int device, std::size_t bytes);
/// Fills with zeros and waits for that.
void zeroGpuMemory(void* data, std::size_t bytes);
/// Copies memory of a GPU to the host's and waits for that.
void readGpuMemory(void* to, const void* from, std::size_t bytes);
/// Zero-filled memory of a GPU that is no peer's business: without the granularity of what can be registered.
std::shared_ptr<void> allocatePrivateGpuMemory(int device, std::size_t bytes);
/// Zero-filled host memory at an address that kernels can use too.
std::shared_ptr<void> allocateGpuVisibleHostMemory(std::size_t bytes);

/// Makes a GPU current in this thread, whose calls then do not disturb what other threads capture.
void serveGpu(int device);
/// Where the GPU sits on the PCI bus, as /sys/bus/pci/devices names it.
std::string gpuPciAddress(int device);

/// GPU memory: as the functions for host memory in memory_transport.hpp. `map` and `adopt` make it accessible to the
/// current device.
SharedPiece shareGpuMemory(void* data, std::size_t size, OfferTable& offers);
MappedPiece mapGpuMemory(const MemoryHandle& handle, std::size_t size, Deadline deadline);
std::shared_ptr<const void> adoptGpuMemory(void* data, std::size_t size);

std::shared_ptr<ConnectionBase> connectCudaIpc(std::shared_ptr<Context> context, const Endpoint& local,
                                               const Endpoint& remote);

}  // namespace mscclpp::detail
