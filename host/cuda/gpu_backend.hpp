// The CUDA functions that the host part needs. Implemented in host/cuda/; without_cuda.cpp replaces it in a build
// without the toolkit.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "host/cuda/staging_copier.hpp"

namespace mscclpp::detail {

/// The texts of cudaGetErrorString and cuGetErrorString; empty if these are not available.
std::string cudaErrorText(int error);
std::string cuErrorText(int error);

/// The current device of this thread.
int currentGpu();
/// Throws Error(InvalidUsage) unless there is such a device.
void checkGpu(int device);
/// The GPU that the memory belongs to; -1 for host memory, and without GPUs.
int gpuOf(const void* data);

/// Zero-filled memory of a GPU that can be registered with CudaIpc.
std::shared_ptr<void> allocateGpuMemory(int device, std::size_t bytes);
/// Sets every byte to `byte`; complete on return.
void fillGpuMemory(void* data, int byte, std::size_t bytes);
/// Copies host memory to GPU memory; complete on return.
void writeGpuMemory(void* to, const void* from, std::size_t bytes);
/// Copies GPU memory to host memory; complete on return.
void readGpuMemory(void* to, const void* from, std::size_t bytes);
/// Zero-filled GPU memory for local use only: not rounded up to the granularity of memory that can be registered.
std::shared_ptr<void> allocatePrivateGpuMemory(int device, std::size_t bytes);
/// Zero-filled host memory that kernels can access at the same address.
std::shared_ptr<void> allocateGpuVisibleHostMemory(std::size_t bytes);

/// Makes a GPU current in this thread, and keeps its calls from disturbing stream captures of other threads.
void initGpuThread(int device);
/// The PCI address of a GPU, as in /sys/bus/pci/devices: "0000:3b:00.0". Unlike an index, it is the same in every
/// process of the host: CUDA_VISIBLE_DEVICES may differ.
std::string gpuPciBusId(int device);

}  // namespace mscclpp::detail
