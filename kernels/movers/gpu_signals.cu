// Copies and signals that are enqueued on a stream.
#include <cuda_runtime.h>

#include "kernels/movers/gpu_signals.hpp"
#include "mscclpp/collective_kernel.cuh"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels::gpu {

namespace {

constexpr auto signalKernel = collectiveKernel<SendSignal, SendSignal::None, SendSignal::None>;
constexpr auto waitKernel = collectiveKernel<AwaitSignals, AwaitSignals::None, AwaitSignals::None>;
constexpr auto padKernel = collectiveKernel<ExchangePadSignals, ExchangePadSignals::None, ExchangePadSignals::None>;

}  // namespace

void loadSignalKernels() {
  cudaFuncAttributes attributes;
  MSCCLPP_CUDATHROW(cudaFuncGetAttributes(&attributes, signalKernel));
  MSCCLPP_CUDATHROW(cudaFuncGetAttributes(&attributes, waitKernel));
  MSCCLPP_CUDATHROW(cudaFuncGetAttributes(&attributes, padKernel));
}

void enqueueCopy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) {
  MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

// Without programmatic dependent launch: the kernel must not start before the copies are complete.
void enqueueSignal(const SendSignal::Args& args, CUstream_st* stream) {
  signalKernel<<<1, SendSignal::maxBlockThreads, 0, stream>>>(args, {}, {});
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

void enqueueWait(const AwaitSignals::Args& args, CUstream_st* stream) {
  waitKernel<<<1, AwaitSignals::maxBlockThreads, 0, stream>>>(args, {}, {});
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

void enqueuePadSignals(const ExchangePadSignals::Args& args, CUstream_st* stream) {
  padKernel<<<1, ExchangePadSignals::maxBlockThreads, 0, stream>>>(args, {}, {});
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

}  // namespace mscclpp::kernels::gpu
