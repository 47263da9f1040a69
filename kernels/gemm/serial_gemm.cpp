#include "serial_gemm.hpp"

#include <algorithm>
#include <utility>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

std::unique_ptr<SerialGemm> SerialGemm::make(std::shared_ptr<Collectives> collectives, const GemmLayer& layer,
                                             int ranks, SharedCublas* shared) {
  SharedCublas own;
  std::shared_ptr<const Cublas> cublas;
  try {
    cublas = (shared != nullptr ? *shared : own).get(layer.operands, layer.fastAccumulation);
    // Later, one rank alone would find out.
    for (const std::size_t rows : {std::size_t{1}, std::size_t{128}, layer.maxRows}) {
      cublas->prepare(std::min(rows, layer.maxRows), layer.width, layer.depth);
    }
  } catch (const Error& error) {
    if (error.getErrorCode() != ErrorCode::InvalidUsage) throw;
    logMessage(LogLevel::Warn, LogSubsystem::Algo, "GEMMs with a collective do without cuBLAS: ", error.what());
    return nullptr;
  }
  return std::unique_ptr<SerialGemm>(new SerialGemm(std::move(cublas), std::move(collectives), layer, ranks));
}

SerialGemm::SerialGemm(std::shared_ptr<const Cublas> cublas, std::shared_ptr<Collectives> collectives,
                       const GemmLayer& layer, int ranks)
    : cublas_(std::move(cublas)),
      collectives_(std::move(collectives)),
      layer_(layer),
      ranks_(static_cast<std::size_t>(ranks)) {}

void SerialGemm::allocate(std::size_t rows) {
  if (rows == 0 || (layer_.collective == GemmCollective::AllReduce && !layer_.hasNorm)) return;
  const bool gathers = layer_.collective == GemmCollective::AllGather;
  const std::size_t rowBytes =
      gathers ? layer_.depth * sizeOf(layer_.operands) : layer_.width * sizeOf(DataType::BFLOAT16);
  between_ = mscclpp::detail::gpuCallocUnique<std::byte>(rows * rowBytes);
  if (gathers && layer_.operands != DataType::BFLOAT16) scales_ = mscclpp::detail::gpuCallocUnique<float>(rows);
}

void SerialGemm::run(const FusedGemmCall& call) const {
  CollectiveCall collective{.type = DataType::BFLOAT16, .reduction = ReduceOp::SUM, .stream = call.stream};
  const float* inputScales = call.inputScales;
  const auto multiply = [&](const void* input, void* output) {
    cublas_->multiply(input, call.weight, output, call.rows, call.width, call.depth, call.stream,
                      {inputScales, call.weightScales});
  };
  switch (layer_.collective) {
    case GemmCollective::AllReduce:
      if (call.norm != nullptr) {
        multiply(call.input, between_.get());
        RmsNormCall norm = *call.norm;
        norm.input = between_.get();
        collectives_->allReduceRmsNorm(norm);
        break;
      }
      multiply(call.input, call.output);
      collective.collective = CollectiveType::AllReduce;
      collective.input = call.output;
      collective.output = call.output;
      collective.count = call.rows * layer_.width;
      collectives_->run(collective);
      break;
    case GemmCollective::ReduceScatter:
      multiply(call.input, between_.get());
      collective.collective = CollectiveType::ReduceScatter;
      collective.input = between_.get();
      collective.output = call.output;
      collective.count = call.rows / ranks_ * layer_.width;
      collectives_->run(collective);
      break;
    case GemmCollective::AllGather:
      collective.collective = CollectiveType::AllGather;
      if (scales_ != nullptr) {
        collective.type = DataType::FLOAT32;
        collective.input = call.inputScales;
        collective.output = scales_.get();
        collective.count = call.rows / ranks_;
        collectives_->run(collective);
        inputScales = scales_.get();
      }
      collective.type = layer_.operands;
      collective.input = call.input;
      collective.output = between_.get();
      collective.count = call.rows / ranks_ * layer_.depth;
      collectives_->run(collective);
      multiply(between_.get(), call.output);
      break;
  }
}

}  // namespace mscclpp::kernels
