// The compiled fused GEMMs of each backend, and the sizes of their calls.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// A rank's call with its width and depth. Throws Error(InvalidUsage) if the layer is not made for its sizes, or for
/// calls with a norm or with scales, or without; and for arrays that are null or not aligned to their elements.
FusedGemmCall sized(FusedGemmCall call, const GemmLayer& layer, int rank, int ranks);
/// The rows of a rank, where they are divided.
inline Range sliceOf(const FusedGemmCall& call, int rank, int ranks) {
  return steppedPart(call.rows, ceilDivide(call.rows, static_cast<std::size_t>(ranks)), static_cast<std::size_t>(rank));
}
/// The norm of a rank's call that sized() returned, with all but the input. Throws Error(InvalidUsage) for one that
/// lacks arrays.
RmsNormCall normOf(const FusedGemmCall& call, const GemmLayer& layer, int rank, int ranks);

/// Throws Error(InvalidUsage) unless what all ranks have in common of a layer is the same of this rank's and rank 0's.
void requireSameLayer(const GemmLayer& layer, int rank, const GemmLayer& ofRank0);

/// The GPU kernels for the calls of a layer up to a number of rows, with their scratch.
class GemmKernel {
 public:
  virtual ~GemmKernel() = default;
  /// The call has the norm that normOf() returns if there is one. blocks: the most.
  virtual void run(const FusedGemmCall& call, int blocks, KernelStart start) const = 0;
};

class SharedCublas;

/// mscclpp::makeFusedGemm(). cublas: read while the object is made; null: it has a Cublas of its own.
std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer, DeviceType deviceType,
                                         std::shared_ptr<Collectives> collectives, SharedCublas* cublas);

// Of each backend: makeFusedGemm() for a layer with sizes above 0, and with operands that there are.
namespace gpu {
/// preferred: the form of all calls that can have it, rank 0's, for tests and measurements; others, and
/// calls that cannot, take the form that is estimated to be the fastest.
std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer,
                                         std::shared_ptr<Collectives> collectives,
                                         std::optional<GemmForm> preferred = {}, SharedCublas* cublas = nullptr);
}  // namespace gpu
namespace cpu {
std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer);
}  // namespace cpu

}  // namespace mscclpp::kernels
