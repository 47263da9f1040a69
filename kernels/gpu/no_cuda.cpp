// Replaces kernels/gpu/ in a build without the CUDA toolkit.
#include "kernels/backend.hpp"
#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/timed_calls.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

[[noreturn]] void throwNoCuda() {
  throw Error("this build of mscclpp has no CUDA: build it with -Dcuda=enabled, or use DeviceType::CPU",
              ErrorCode::InvalidUsage);
}

}  // namespace

const Backend& gpuBackend() {
  throwNoCuda();
}

std::unique_ptr<TimedCall> gpuTimedCall(CUstream_st*, const Call&, const TimingOptions&, const Call&) {
  throwNoCuda();
}

std::unique_ptr<FusedGemm> gpu::makeFusedGemm(Communicator&, const GemmLayer&, std::shared_ptr<Collectives>,
                                              std::optional<GemmForm>) {
  throwNoCuda();
}

}  // namespace mscclpp::kernels
