#include "fused_gemm.hpp"

#include <string>
#include <utility>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace kernels {

FusedGemmCall sized(FusedGemmCall call, const GemmLayer& layer) {
  if (call.rows > layer.maxRows) {
    throw Error("a call of " + std::to_string(call.rows) + " rows of a layer of " + std::to_string(layer.maxRows) +
                    ": make the FusedGemm for the longest call (GemmLayer::maxRows)",
                ErrorCode::InvalidUsage);
  }
  if (call.width == 0) call.width = layer.width;
  if (call.depth == 0) call.depth = layer.depth;
  const bool gathers = layer.collective == GemmCollective::AllGather;
  if (gathers ? call.depth != layer.depth : call.width != layer.width) {
    const char* const name = gathers ? "depth" : "width";
    throw Error(std::string("a call of ") + name + " " + std::to_string(gathers ? call.depth : call.width) +
                    " of a layer of " + name + " " + std::to_string(gathers ? layer.depth : layer.width) +
                    ": make a FusedGemm for each " + name,
                ErrorCode::InvalidUsage);
  }
  return call;
}

}  // namespace kernels

std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer, DeviceType deviceType,
                                         std::shared_ptr<Collectives> collectives) {
  if (layer.maxRows == 0 || layer.width == 0 || layer.depth == 0) {
    throw Error("a FusedGemm needs the sizes of its layer: maxRows, width and depth above 0", ErrorCode::InvalidUsage);
  }
  return deviceType == DeviceType::GPU ? kernels::gpu::makeFusedGemm(communicator, layer, std::move(collectives))
                                       : kernels::cpu::makeFusedGemm(communicator, layer);
}

}  // namespace mscclpp
