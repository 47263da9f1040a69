// Replaces kernels/gpu/ in a build without the CUDA toolkit.
#include "host/cuda/no_cuda.hpp"

#include "kernels/backend.hpp"
#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/timed_calls.hpp"

namespace mscclpp::kernels {

const Backend& gpuBackend() {
  mscclpp::detail::noCuda();
}

std::unique_ptr<TimedCall> gpuTimedCall(CUstream_st*, const Call&, const TimingOptions&, const Call&) {
  mscclpp::detail::noCuda();
}

std::unique_ptr<FusedGemm> gpu::makeFusedGemm(Communicator&, const GemmLayer&, std::shared_ptr<Collectives>,
                                              std::optional<GemmForm>, SharedCublas*) {
  mscclpp::detail::noCuda();
}

}  // namespace mscclpp::kernels
