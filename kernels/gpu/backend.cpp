// The GPU backend of the compiled collectives.
#include "kernels/backend.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "clock_sync.hpp"
#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "kernels/algorithms.hpp"
#include "kernels/all_reduce_fp8.hpp"
#include "kernels/rms_norm.hpp"
#include "line_atomicity.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "stream_events.hpp"

namespace mscclpp::kernels {

namespace {

MemoryRange allocationOf(MemoryRange range) {
  const int device = mscclpp::detail::gpuIdFromAddress(range.begin);
  if (device < 0) return range;
  const CudaDeviceGuard guard(device);  // the driver searches the allocations of the current device only
  const auto begin = reinterpret_cast<CUdeviceptr>(range.begin);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  MSCCLPP_CUTHROW(mscclpp::detail::driver().memGetAddressRange(&base, &bytes, begin));
  // A range of addresses may be mapped to several allocations.
  if (range.bytes > bytes - (begin - base)) return range;
  return {reinterpret_cast<void*>(base), bytes};
}

}  // namespace

const Backend& gpuBackend() {
  static const Backend backend{
      [] {
        int device = 0;
        MSCCLPP_CUDATHROW(cudaGetDevice(&device));
        cudaDeviceProp properties{};
        MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, device));
        return std::string(properties.name);
      },
      [] {
        int device = 0;
        MSCCLPP_CUDATHROW(cudaGetDevice(&device));
        return device;
      },
      [](CUstream_st* stream) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        MSCCLPP_CUDATHROW(cudaStreamIsCapturing(stream, &status));
        return status != cudaStreamCaptureStatusNone;
      },
      [] { MSCCLPP_CUDATHROW(cudaDeviceSynchronize()); },
      allocationOf,
      [](std::size_t bytes) { return std::static_pointer_cast<void>(mscclpp::detail::gpuCallocShared<char>(bytes)); },
      [](void* address, int byte, std::size_t bytes) { gpuMemset(address, byte, bytes); },
      [](void* address, const void* from, std::size_t bytes) {
        gpuMemcpy<char>(static_cast<char*>(address), static_cast<const char*>(from), bytes, cudaMemcpyHostToDevice);
      },
      [] {
        int device = 0;
        MSCCLPP_CUDATHROW(cudaGetDevice(&device));
        int major = 0;
        MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
        return major >= 9;
      },
      gpu::areLineStoresAtomic,
      [](std::size_t algorithm, DataType type, int ranks) {
        if (!hasReduction(algorithmTable[algorithm].collective)) return gpu::findMover(algorithm, ranks);
        return visit(
            type, [&](auto tag) { return gpu::findReduction<typename decltype(tag)::Type>(algorithm, ranks); },
            [] { return KernelFunction{nullptr}; });
      },
      [](std::size_t algorithm, DataType type, int ranks) {
        return visit(
            type,
            [&](auto tag) {
              using T = typename decltype(tag)::Type;
              if constexpr (hasTracedKernels<T>()) return gpu::findTracedReduction<T>(algorithm, ranks);
              return KernelFunction{nullptr};
            },
            [] { return KernelFunction{nullptr}; });
      },
      [](std::size_t algorithm, DataType type, int ranks) {
        return visit(
            type,
            [&](auto tag) {
              using T = typename decltype(tag)::Type;
              if constexpr (isCommonType<T>) return gpu::findJoinedReduction<T>(algorithm, ranks);
              return KernelFunction{nullptr};
            },
            [] { return KernelFunction{nullptr}; });
      },
      gpu::exchange,
      [](DataType type, Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
        if (type == DataType::FLOAT16) return gpu::makeRmsNorm<f16>(communicator, monitor);
        if (type == DataType::BFLOAT16) return gpu::makeRmsNorm<bf16>(communicator, monitor);
        return gpu::makeRmsNorm<float>(communicator, monitor);
      },
      [](DataType type, Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
        if (type == DataType::FLOAT16) return gpu::makeAllReduceFp8<f16>(communicator, monitor);
        if (type == DataType::BFLOAT16) return gpu::makeAllReduceFp8<bf16>(communicator, monitor);
        return gpu::makeAllReduceFp8<float>(communicator, monitor);
      },
      gpu::launchClockSync,
      gpu::currentBudget};
  return backend;
}

}  // namespace mscclpp::kernels
