// The compiled fused GEMMs of each backend, and the sizes of their calls.
#pragma once

#include <memory>

#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// The call with its width and depth. Throws Error(InvalidUsage) if the layer is not made for its sizes.
FusedGemmCall sized(FusedGemmCall call, const GemmLayer& layer);

// Of each backend: makeFusedGemm() for a layer with sizes above 0.
namespace gpu {
std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer,
                                         std::shared_ptr<Collectives> collectives);
}  // namespace gpu
namespace cpu {
std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer);
}  // namespace cpu

}  // namespace mscclpp::kernels
