// Implementation of kernels.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "host/bootstrap/group_agreement.hpp"
#include "kernels/gemm/few_rows_tiles.hpp"
#include "kernels/gemm/kernels.hpp"
#include "kernels/gemm/rates.hpp"
#include "kernels/gpu_budget.hpp"
#include "kernels/rms_norm.hpp"
#include "mscclpp/fusion/gemm/all_gather_gemm.hpp"
#include "mscclpp/fusion/gemm/gemm_packet_reduce.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/fusion/gemm/norm_rows.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels {

namespace detail {

// Tiles for few rows, by the most that they hold. They are so narrow that with 8192 columns nearly all multiprocessors
// have one, and their stages fill the shared memory of a Hopper GPU: what a multiprocessor has requested decides how
// fast it reads.
inline constexpr GemmShape rows16{.rows = 16, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2};
inline constexpr GemmShape rows32{.rows = 32, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2};
inline constexpr GemmShape rows64{
    .rows = 64, .columns = 64, .depth = 128, .stages = 6, .warpRows = 2, .warpColumns = 2, .warpDepths = 2};
inline constexpr GemmShape rows128{
    .rows = 128, .columns = 64, .depth = 128, .stages = 4, .warpRows = 2, .warpColumns = 2, .warpDepths = 2};
constexpr bool matches(const FewRowsTile& tile, const GemmShape& shape) {
  return tile.rows == static_cast<std::size_t>(shape.rows) && fewRowsColumns == static_cast<std::size_t>(shape.columns);
}
static_assert(matches(fewRowsTiles[0], rows16) && matches(fewRowsTiles[1], rows32) &&
              matches(fewRowsTiles[2], rows64) && matches(fewRowsTiles[3], rows128));

/// The collectives for operands of one type, with tiles whose steps have as many bytes as the shapes of bf16.
template <class Operand>
struct GemmCollectives {
  static constexpr GemmShape tileOf(const GemmShape& shape) {
    return shape.withDepth(shape.depth * static_cast<int>(sizeof(bf16) / sizeof(Operand)));
  }
  template <RowDelivery delivery, GemmShape shape>
  using FewRows = GemmPacketReduce<
      bf16, GemmPacketReduceConfig{.delivery = delivery, .tile = tileOf(shape), .hopBytes = gemmHopBytes}, Operand>;
  /// Result: StoreRows, or with a norm AnyNormRows, for which a warp holds a whole row in registers.
  template <RowDelivery delivery, class Result, GemmShape shape = GemmShape{}>
  using Reduce = GemmReduce<bf16, GemmReduceConfig{.delivery = delivery, .tile = tileOf(shape)}, Result, Operand>;
  template <GemmShape shape = GemmShape{}>
  using Gather =
      AllGatherGemm<bf16, AllGatherGemmConfig{.tile = tileOf(shape), .gathersScales = std::is_same_v<Operand, f8e4m3>},
                    Operand>;
};
static_assert(mostFusedNormWidth ==
              std::size_t{GemmCollectives<bf16>::Reduce<RowDelivery::ToAll, AnyNormRows<bf16>>::packsPerLane} *
                  packSize<bf16> * 32);

/// Where a collective stores its rows.
template <class C>
struct ResultOf {
  using Type = StoreRows<bf16>;
};
template <AllGatherGemmConfig config, class Operand>
struct ResultOf<AllGatherGemm<bf16, config, Operand>> {
  using Type = Matrix<bf16>;
};
template <GemmReduceConfig config, class Operand>
struct ResultOf<GemmReduce<bf16, config, AnyNormRows<bf16>, Operand>> {
  using Type = AnyNormRows<bf16>;
};

/// The calls of one collective C, with operands of this type.
template <class C, class Operand>
class KernelOf : public GemmKernel {
 public:
  KernelOf(Communicator& communicator, const GemmLayer& layer, std::size_t maxRows,
           std::shared_ptr<WaitMonitor> monitor)
      : layer_(layer),
        blocks_(residentBlocks(*communicator.bootstrap())),
        state_(communicator, DeviceType::GPU,
               C::scratchFor(maxRows, layer.collective == GemmCollective::AllGather ? layer.depth : layer.width,
                             communicator.bootstrap()->getNranks()),
               maxRows, std::move(monitor)) {}

  void run(const FusedGemmCall& call, int blocks, KernelStart start) const override {
    const auto args = state_.args(call.rows);
    const auto slice =
        steppedPart(call.rows, C::sliceRows(call.rows, args.team.size()), static_cast<std::size_t>(args.team.rank()));
    const bool gathers = layer_.collective == GemmCollective::AllGather;
    const bool scatters = layer_.collective == GemmCollective::ReduceScatter;
    const std::size_t inputRows = gathers ? slice.size() : call.rows;
    const Operands operands{makeMatrix(static_cast<const Operand*>(call.input), inputRows, call.depth),
                            makeMatrix(static_cast<const Operand*>(call.weight), call.width, call.depth),
                            opOf(call, inputRows)};
    const auto result = [&]() -> Result {
      if constexpr (std::is_same_v<Result, AnyNormRows<bf16>>) {
        return {call.width, call.norm->quantisation, arraysOf<bf16>(*call.norm)};
      } else {
        return {makeMatrix(static_cast<bf16*>(call.output), scatters ? slice.size() : call.rows, call.width)};
      }
    };
    const LaunchShape shape{std::min(blocks, blocks_), C::maxBlockThreads};
    MSCCLPP_CUDATHROW(launch<C>(shape, call.stream, args, operands, result(), start));
  }

  /// Of a block.
  static std::size_t sharedBytes() { return C::sharedBytes(typename C::Args{}, {}); }
  /// As gemmKernelsArchitecture().
  static int architecture() {
    cudaFuncAttributes attributes{};
    MSCCLPP_CUDATHROW(cudaFuncGetAttributes(&attributes, collectiveKernel<C, Operands, Result>));
    return attributes.ptxVersion;
  }

 private:
  static constexpr bool hasScales = std::is_same_v<Operand, f8e4m3>;
  using PairOp = std::conditional_t<hasScales, ScalePairs<bf16>, KeepPairs<bf16>>;
  using Operands = GemmOperands<Operand, PairOp>;
  using Result = typename ResultOf<C>::Type;

  /// Collective: loads the kernel, and returns how many of its blocks are resident at once on every rank: all of them
  /// wait for each other, and for those of other ranks.
  static int residentBlocks(Bootstrap& bootstrap) {
    const mscclpp::detail::GroupAgreement agreement(bootstrap, "FusedGemm");
    const auto all = agreement.gather("load its kernels", [] {
      const std::size_t sharedBytes = KernelOf::sharedBytes();
      constexpr auto kernel = collectiveKernel<C, Operands, Result>;
      int blocks = 0;
      MSCCLPP_CUDATHROW(mscclpp::detail::allowSharedMemory(kernel, sharedBytes));
      MSCCLPP_CUDATHROW(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, C::maxBlockThreads, sharedBytes));
      if (blocks < 1) throw Error("a block of the fused GEMM does not fit on this GPU", ErrorCode::InvalidUsage);
      return std::min(blocks * gpu::multiprocessors(), maxBlocks);
    });
    return *std::min_element(all.begin(), all.end());
  }

  static PairOp opOf([[maybe_unused]] const FusedGemmCall& call, [[maybe_unused]] std::size_t inputRows) {
    if constexpr (hasScales) {
      return {call.inputScales, call.weightScales, inputRows, call.width};
    } else {
      return {};
    }
  }

  GemmLayer layer_;
  int blocks_;  ///< resident at once, on every rank
  CollectiveState<C> state_;
};

}  // namespace detail

template <class Operand>
int gemmKernelsArchitecture() {
  return detail::KernelOf<typename detail::GemmCollectives<Operand>::template Gather<>, Operand>::architecture();
}

template <class Operand>
std::vector<GemmKernelOfRows> makeGemmKernels(Communicator& communicator, const GemmLayer& layer,
                                              std::size_t sharedBytes, const MostRows& mostRows,
                                              const std::shared_ptr<WaitMonitor>& monitor) {
  using namespace detail;
  using Collectives = GemmCollectives<Operand>;
  using Store = StoreRows<bf16>;
  using Norm = AnyNormRows<bf16>;
  using enum RowDelivery;
  std::vector<GemmKernelOfRows> kernels;
  // Each kernel, and its scratch, is for the calls that take it. Where the shared memory is smaller than Hopper's,
  // those for few rows are left to the kernels for many, which need 96 KiB.
  std::size_t previous = 0;
  const auto add = [&]<class C>(std::size_t last) {
    const std::size_t rows = mostRows(previous + 1, std::min(last, layer.maxRows));
    if (rows > 0) kernels.push_back({rows, std::make_unique<KernelOf<C, Operand>>(communicator, layer, rows, monitor)});
    previous = std::max(previous, last);
  };
  const auto addFewRows = [&]<class C>(const GemmShape& tile, int ranks = 1) {
    if (KernelOf<C, Operand>::sharedBytes() <= sharedBytes)
      add.template operator()<C>(static_cast<std::size_t>(tile.rows) * static_cast<std::size_t>(ranks));
  };
  const auto addReduction = [&]<RowDelivery delivery>() {
    addFewRows.template operator()<typename Collectives::template FewRows<delivery, rows16>>(rows16);
    addFewRows.template operator()<typename Collectives::template FewRows<delivery, rows32>>(rows32);
    addFewRows.template operator()<typename Collectives::template FewRows<delivery, rows64>>(rows64);
    addFewRows.template operator()<typename Collectives::template FewRows<delivery, rows128>>(rows128);
    add.template operator()<typename Collectives::template Reduce<delivery, Store>>(layer.maxRows);
  };
  const int ranks = communicator.bootstrap()->getNranks();
  switch (layer.collective) {
    case GemmCollective::AllReduce:
      if (layer.hasNorm) {
        addFewRows.template operator()<typename Collectives::template Reduce<Redundant, Norm, rows16>>(rows16);
        addFewRows.template operator()<typename Collectives::template Reduce<Redundant, Norm, rows64>>(rows64);
        add.template operator()<typename Collectives::template Reduce<ToAll, Norm>>(layer.maxRows);
        break;
      }
      addReduction.template operator()<ToAll>();
      break;
    case GemmCollective::ReduceScatter:
      if (layer.hasNorm) {
        add.template operator()<typename Collectives::template Reduce<ToOwner, Norm>>(layer.maxRows);
        break;
      }
      addReduction.template operator()<ToOwner>();
      break;
    case GemmCollective::AllGather:
      // A tile has rows of one rank.
      addFewRows.template operator()<typename Collectives::template Gather<rows16>>(rows16, ranks);
      addFewRows.template operator()<typename Collectives::template Gather<rows64>>(rows64, ranks);
      add.template operator()<typename Collectives::template Gather<>>(layer.maxRows);
      break;
  }
  return kernels;
}

}  // namespace mscclpp::kernels
