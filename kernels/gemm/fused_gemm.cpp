#include "fused_gemm.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "kernels/rms_norm.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp {

namespace kernels {

namespace {

/// An array of a call.
struct GemmArray {
  const char* name;
  const void* data;
  std::size_t rows, columns;
  std::size_t elementBytes;
};

void requireValid(const GemmArray& array) {
  if (array.rows == 0 || array.columns == 0) return;
  if (array.data == nullptr) {
    const std::string columns = array.columns == 1 ? "" : " x " + std::to_string(array.columns);
    throw Error(std::string("a call without ") + array.name + ": set FusedGemmCall::" + array.name + ", an array of " +
                    std::to_string(array.rows) + columns + " elements",
                ErrorCode::InvalidUsage);
  }
  if (reinterpret_cast<std::uintptr_t>(array.data) % array.elementBytes != 0) {
    throw Error(std::string("FusedGemmCall::") + array.name + " must be aligned to its elements of " +
                    std::to_string(array.elementBytes) + " bytes",
                ErrorCode::InvalidUsage);
  }
}

/// All arrays of a call but those of its norm.
void requireValidArrays(const FusedGemmCall& call, const GemmLayer& layer, int rank, int ranks) {
  const std::size_t slice = sliceOf(call, rank, ranks).size();
  const std::size_t inputRows = layer.collective == GemmCollective::AllGather ? slice : call.rows;
  const std::size_t outputRows = layer.collective == GemmCollective::ReduceScatter ? slice : call.rows;
  const std::size_t operandBytes = sizeOf(layer.operands);
  const std::size_t weightRows = call.rows > 0 ? call.width : 0;
  requireValid({"input", call.input, inputRows, call.depth, operandBytes});
  requireValid({"weight", call.weight, weightRows, call.depth, operandBytes});
  if (!layer.hasNorm) requireValid({"output", call.output, outputRows, call.width, sizeOf(DataType::BFLOAT16)});
  if (layer.operands == DataType::BFLOAT16) return;
  requireValid({"inputScales", call.inputScales, inputRows, 1, sizeof(float)});
  requireValid({"weightScales", call.weightScales, weightRows, 1, sizeof(float)});
}

}  // namespace

FusedGemmCall sized(FusedGemmCall call, const GemmLayer& layer, int rank, int ranks) {
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
  if (layer.hasNorm != (call.norm != nullptr)) {
    throw Error(layer.hasNorm
                    ? "a call without a norm of a layer with one: set FusedGemmCall::norm"
                    : "a call with a norm of a layer without: make the FusedGemm for them (GemmLayer::hasNorm)",
                ErrorCode::InvalidUsage);
  }
  if (layer.hasNorm && call.output != nullptr) {
    throw Error("a call with a norm has an output: the arrays of its norm are its outputs", ErrorCode::InvalidUsage);
  }
  const bool hasInputScales = call.inputScales != nullptr, hasWeightScales = call.weightScales != nullptr;
  if (layer.operands == DataType::BFLOAT16 && (hasInputScales || hasWeightScales)) {
    throw Error(
        "a call with scales of a layer of bfloat16, which has none: pass null as FusedGemmCall::inputScales and "
        "weightScales, or make the FusedGemm for fp8 (GemmLayer::operands)",
        ErrorCode::InvalidUsage);
  }
  requireValidArrays(call, layer, rank, ranks);
  return call;
}

RmsNormCall normOf(const FusedGemmCall& call, const GemmLayer& layer, int rank, int ranks) {
  const bool scatters = layer.collective == GemmCollective::ReduceScatter;
  RmsNormCall norm = *call.norm;
  norm.input = nullptr;
  norm.rows = scatters ? sliceOf(call, rank, ranks).size() : call.rows;
  norm.hidden = call.width;
  norm.type = DataType::BFLOAT16;
  norm.stream = call.stream;
  requireValidNorm(norm, "norm of a fused GEMM");
  if (norm.quantisation != Quantisation::None && norm.normalised != nullptr) {
    throw Error(
        "norm of a fused GEMM: with a quantisation the rows are stored in their quantised form alone: pass "
        "null as normalised",
        ErrorCode::InvalidUsage);
  }
  return norm;
}

void requireSameLayer(const GemmLayer& layer, int rank, const GemmLayer& ofRank0) {
  const bool gathers = layer.collective == GemmCollective::AllGather;
  if (layer.collective == ofRank0.collective && layer.maxRows == ofRank0.maxRows && layer.hasNorm == ofRank0.hasNorm &&
      layer.operands == ofRank0.operands && layer.fastAccumulation == ofRank0.fastAccumulation &&
      (gathers ? layer.depth == ofRank0.depth : layer.width == ofRank0.width)) {
    return;
  }
  throw Error("rank " + std::to_string(rank) +
                  " makes a FusedGemm for another layer than rank 0: pass the same collective, maxRows, hasNorm, "
                  "operands, fastAccumulation and " +
                  (gathers ? "depth" : "width") + " on all ranks",
              ErrorCode::InvalidUsage);
}

}  // namespace kernels

namespace {

/// What is wrong with a layer whatever the other ranks make.
void requireValidLayer(const GemmLayer& layer) {
  if (layer.maxRows == 0 || layer.width == 0 || layer.depth == 0) {
    throw Error("a FusedGemm needs the sizes of its layer: maxRows, width and depth above 0", ErrorCode::InvalidUsage);
  }
  constexpr std::size_t mostSize = std::numeric_limits<std::int32_t>::max();
  if (layer.maxRows > mostFusedGemmRows || layer.width > mostSize || layer.depth > mostSize) {
    throw Error("a FusedGemm for " + std::to_string(layer.maxRows) + " rows, width " + std::to_string(layer.width) +
                    " and depth " + std::to_string(layer.depth) + ": they are at most " +
                    std::to_string(mostFusedGemmRows) + " rows, and 2^31 - 1",
                ErrorCode::InvalidUsage);
  }
  if (layer.maxBlocks < 0) {
    throw Error(
        "GemmLayer::maxBlocks is " + std::to_string(layer.maxBlocks) + ": pass 0 for as many as the GPU has room for",
        ErrorCode::InvalidUsage);
  }
  if (layer.operands != DataType::BFLOAT16 && layer.operands != DataType::FLOAT8_E4M3FN) {
    throw Error(std::string("a FusedGemm of operands of ") + nameOf(layer.operands) +
                    ": pass BFLOAT16 or FLOAT8_E4M3FN as GemmLayer::operands",
                ErrorCode::InvalidUsage);
  }
  if (layer.fastAccumulation && layer.operands == DataType::BFLOAT16) {
    throw Error(
        "a FusedGemm of bfloat16 with fastAccumulation, which is for fp8: leave GemmLayer::fastAccumulation false",
        ErrorCode::InvalidUsage);
  }
  if (layer.hasNorm && layer.collective == GemmCollective::AllGather) {
    throw Error(
        "a FusedGemm of an all-gather has no norm, which is of rows that are summed over the ranks: use "
        "AllReduce or ReduceScatter",
        ErrorCode::InvalidUsage);
  }
  if (layer.hasNorm && (layer.width % 16 != 0 || layer.width > mostRmsNormElements)) {
    throw Error("a FusedGemm with a norm of width " + std::to_string(layer.width) + ": it is at most " +
                    std::to_string(mostRmsNormElements) + ", in multiples of 16",
                ErrorCode::InvalidUsage);
  }
}

/// collectives: given with a FusedGemm for GPUs.
void requireOf(const Communicator& communicator, const Collectives& collectives) {
  if (collectives.deviceType() != DeviceType::GPU) {
    throw Error("a FusedGemm for GPUs with Collectives of CPU ranks: pass those for DeviceType::GPU, or none",
                ErrorCode::InvalidUsage);
  }
  const auto bootstrap = communicator.bootstrap();
  if (collectives.rank() != bootstrap->getRank() || collectives.ranks() != bootstrap->getNranks()) {
    throw Error("a FusedGemm with Collectives of other ranks: pass those of the same communicator, or none",
                ErrorCode::InvalidUsage);
  }
}

}  // namespace

std::unique_ptr<FusedGemm> kernels::makeFusedGemm(Communicator& communicator, const GemmLayer& layer,
                                                  DeviceType deviceType, std::shared_ptr<Collectives> collectives,
                                                  SharedCublas* cublas) {
  const bool onGpu = deviceType == DeviceType::GPU;
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "FusedGemm");
  agreement.runStep("state its layer", [&] {
    requireValidLayer(layer);
    if (onGpu && collectives != nullptr) requireOf(communicator, *collectives);
    return std::vector<char>();
  });
  return onGpu ? gpu::makeFusedGemm(communicator, layer, std::move(collectives), {}, cublas)
               : cpu::makeFusedGemm(communicator, layer);
}

std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer, DeviceType deviceType,
                                         std::shared_ptr<Collectives> collectives) {
  return kernels::makeFusedGemm(communicator, layer, deviceType, std::move(collectives), nullptr);
}

}  // namespace mscclpp
