// Replaces gpu_engine.cu and gpu_signals.cu in a build without the CUDA toolkit.
#include "kernels/movers/engine.hpp"
#include "kernels/movers/gpu_signals.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

[[noreturn]] void throwWithoutCuda() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace

std::unique_ptr<Engine> makeGpuEngine(const MoverBarrier::Args& /*barrier*/, int /*copiesPerTransfer*/) {
  throwWithoutCuda();
}

void gpu::loadSignalKernels() {
  throwWithoutCuda();
}
void gpu::enqueueCopy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/, CUstream_st* /*stream*/) {
  throwWithoutCuda();
}
void gpu::enqueueSignal(const SendSignal::Args& /*args*/, CUstream_st* /*stream*/) {
  throwWithoutCuda();
}
void gpu::enqueueWait(const AwaitSignals::Args& /*args*/, CUstream_st* /*stream*/) {
  throwWithoutCuda();
}
void gpu::enqueuePadSignals(const ExchangePadSignals::Args& /*args*/, CUstream_st* /*stream*/) {
  throwWithoutCuda();
}

}  // namespace mscclpp::kernels
