// Replaces gpu_engine.cu and gpu_signals.cu in a build without the CUDA toolkit.
#include "host/cuda/no_cuda.hpp"
#include "kernels/movers/engine.hpp"
#include "kernels/movers/gpu_signals.hpp"

namespace mscclpp::kernels {

std::unique_ptr<Engine> makeGpuEngine(const MoverBarrier::Args& /*barrier*/, int /*copiesPerTransfer*/) {
  mscclpp::detail::noCuda();
}

void gpu::loadSignalKernels() {
  mscclpp::detail::noCuda();
}
void gpu::enqueueCopy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/, CUstream_st* /*stream*/) {
  mscclpp::detail::noCuda();
}
void gpu::enqueueSignal(const SendSignal::Args& /*args*/, CUstream_st* /*stream*/) {
  mscclpp::detail::noCuda();
}
void gpu::enqueueWait(const AwaitSignals::Args& /*args*/, CUstream_st* /*stream*/) {
  mscclpp::detail::noCuda();
}
void gpu::enqueuePadSignals(const ExchangePadSignals::Args& /*args*/, CUstream_st* /*stream*/) {
  mscclpp::detail::noCuda();
}

}  // namespace mscclpp::kernels
