#include "mscclpp/kernels/fused_gemms.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/gemm/shared_cublas.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace {

constexpr std::size_t fewestRows = 64;  // scratch for fewer is not worth another set-up

/// Sizes that have none are wrong, of which makeFusedGemm() tells all ranks.
std::size_t powerOfTwo(std::size_t size) {
  constexpr std::size_t greatest = std::size_t{1} << 63;
  return size > greatest ? size : std::bit_ceil(size);
}

}  // namespace

FusedGemms::FusedGemms(std::shared_ptr<Communicator> communicator, DeviceType deviceType,
                       std::shared_ptr<Collectives> collectives)
    : communicator_(std::move(communicator)),
      deviceType_(deviceType),
      collectives_(std::move(collectives)),
      cublas_(std::make_unique<kernels::SharedCublas>()) {
  if (communicator_ == nullptr) throw Error("FusedGemms without a communicator: pass one", ErrorCode::InvalidUsage);
}

FusedGemms::~FusedGemms() = default;

FusedGemms::Key FusedGemms::keyOf(GemmCollective collective, const FusedGemmCall& call, DataType operands,
                                  bool fastAccumulation) {
  const bool gathers = collective == GemmCollective::AllGather;
  const std::size_t travelling = gathers ? call.depth : call.width, other = gathers ? call.width : call.depth;
  return {collective, operands, fastAccumulation, travelling, powerOfTwo(other), call.norm != nullptr};
}

void FusedGemms::run(GemmCollective collective, const FusedGemmCall& call, DataType operands, bool fastAccumulation) {
  if (call.rows == 0) return;
  auto& bySize = gemms_[keyOf(collective, call, operands, fastAccumulation)];
  auto found = bySize.lower_bound(call.rows);
  if (found == bySize.end()) {
    const GemmLayer layer{.collective = collective,
                          .maxRows = powerOfTwo(std::max(call.rows, fewestRows)),
                          .width = call.width,
                          .depth = call.depth,
                          .hasNorm = call.norm != nullptr,
                          .operands = operands,
                          .fastAccumulation = fastAccumulation};
    auto gemm = kernels::makeFusedGemm(*communicator_, layer, deviceType_, collectives_, cublas_.get());
    found = bySize.emplace(layer.maxRows, std::move(gemm)).first;
  }
  found->second->run(call);
}

std::optional<GemmForm> FusedGemms::form(GemmCollective collective, const FusedGemmCall& call, DataType operands,
                                         bool fastAccumulation) const {
  if (call.rows == 0) return GemmForm::Fused;
  const auto bySize = gemms_.find(keyOf(collective, call, operands, fastAccumulation));
  if (bySize == gemms_.end()) return {};
  const auto found = bySize->second.lower_bound(call.rows);
  if (found == bySize->second.end()) return {};
  return found->second->form(call.rows);
}

void FusedGemms::check() const {
  for (const auto& [key, bySize] : gemms_) {
    for (const auto& [rows, gemm] : bySize) gemm->check();
  }
}

}  // namespace mscclpp
