// The GEMMs of CUTLASS of one collective and number of ranks: their state, and their launches.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/device_kernel.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "host/bootstrap/group_agreement.hpp"
#include "kernels/gemm/cutlass/gemm.hpp"
#include "kernels/gemm/cutlass/gemm_plan.hpp"
#include "kernels/gemm/cutlass/gemm_tiles.hpp"
#include "kernels/gemm/staged_matrix.hpp"
#include "kernels/gpu_budget.hpp"
#include "mscclpp/fusion/cutlass/all_gather_gemm_kernel.cuh"
#include "mscclpp/fusion/cutlass/gemm_row_exchange.cuh"
#include "mscclpp/fusion/cutlass/scaled_product.cuh"
#include "mscclpp/fusion/cutlass/stock_gemm.cuh"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

namespace detail {

using CutlassElement = cutlass::bfloat16_t;  ///< of products

template <DataType operands>
using CutlassOperand = std::conditional_t<operands == DataType::BFLOAT16, cutlass::bfloat16_t, cutlass::float_e4m3_t>;

/// What the epilogue makes of the accumulators.
template <CutlassTile tile, DataType operands, bool gathers>
struct CutlassFusion {
  using Type = cutlass::epilogue::fusion::LinearCombination<CutlassElement, float, void, float>;
  template <class Arguments, class RowScales>
  static void setScales(Arguments& arguments, const RowScales& /*ofRows*/, const float* /*ofColumns*/) {
    arguments.alpha = 1.0f;
  }
};
template <CutlassTile tile>
struct CutlassFusion<tile, DataType::FLOAT8_E4M3FN, false> : ScaledProduct<tile, CutlassElement> {};
template <CutlassTile tile>
struct CutlassFusion<tile, DataType::FLOAT8_E4M3FN, true> : GatheredScaledProduct<tile, CutlassElement> {};

template <CutlassTile tile, DataType operands, bool gathers>
using CutlassStock = typename StockGemm<tile, CutlassOperand<operands>, CutlassElement,
                                        typename CutlassFusion<tile, operands, gathers>::Type,
                                        gathers ? gatherSharedBytes : exchangeSharedBytes>::Type;

template <GemmCollective collective, int ranks, DataType operands, CutlassTile tile>
struct CutlassKernel {
  static constexpr auto delivery = collective == GemmCollective::AllReduce ? RowDelivery::ToAll : RowDelivery::ToOwner;
  using Type = GemmRowExchange<CutlassStock<tile, operands, false>, ranks, delivery>;
};
template <int ranks, DataType operands, CutlassTile tile>
struct CutlassKernel<GemmCollective::AllGather, ranks, operands, tile> {
  static constexpr int scalesPerRow = operands == DataType::BFLOAT16 ? 0 : 1;
  using Type = AllGatherGemmKernel<CutlassStock<tile, operands, true>, ranks, scalesPerRow>;
};

inline void require(cutlass::Status status) {
  if (status == cutlass::Status::kSuccess) return;
  MSCCLPP_CUDATHROW(cudaGetLastError());
  throw Error(std::string("a kernel of CUTLASS cannot be launched: ") + cutlassGetStatusString(status),
              ErrorCode::InternalError);
}

inline int intOf(std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw Error("a GEMM with a size of " + std::to_string(value) + ": sizes up to 2^31 - 1 are supported",
                ErrorCode::InvalidUsage);
  }
  return static_cast<int>(value);
}

}  // namespace detail

/// The kernels of a collective, one for each tile, and the state that their calls share. They start in order, never
/// early: CUTLASS's kernels do not wait for what is before them in the stream.
template <GemmCollective collective, int ranks, DataType operands>
class CutlassGemm : public GemmKernel {
  static constexpr bool gathers = collective == GemmCollective::AllGather;
  static constexpr CutlassGemmTiles tiles = cutlassGemmTiles(operands, gathers);
  template <int tile>
  using Kernel = typename detail::CutlassKernel<collective, ranks, operands, cutlassTiles[tiles.tiles[tile]]>::Type;
  using Element = detail::CutlassElement;
  using Operand = detail::CutlassOperand<operands>;
  using Scratch = typename Kernel<0>::Scratch;

  /// What a CollectiveState is for.
  struct Exchange {
    using Args = CollectiveArgs<ranks, Scratch>;
    using Scratch = CutlassGemm::Scratch;
    static constexpr int maxBlockThreads = static_cast<int>(Kernel<0>::MaxThreadsPerBlock);
    static bool accepts(const Args& args, LaunchShape /*shape*/) {
      if constexpr (gathers) {
        return ceilDivide(args.count, std::size_t{ranks}) <= args.scratch.rows;
      } else {
        using Tiles = typename Kernel<0>::Tiles;
        return args.scratch.accepts(Tiles::exchangeRows(args.count) * Tiles::partsOf(args.scratch));
      }
    }
  };

 public:
  CutlassGemm(Communicator& communicator, const GemmPlace& place, const GemmLayer& layer, std::size_t maxRows,
              std::shared_ptr<WaitMonitor> monitor)
      : place_(place),
        layer_(layer),
        blocks_(agreedBlocks(communicator)),
        state_(communicator, DeviceType::GPU, scratchFor(layer, maxRows), maxRows, std::move(monitor)) {}

  void run(const FusedGemmCall& call, int blocks, KernelStart /*start*/) const override {
    GemmPlace place = place_;
    place.cutlassBlocks = std::min(blocks, blocks_);
    // Slots and flags of a reduction are those of tiles: its plan follows from what all ranks have alike, which the
    // depth of a call need not be. All tiles of all-gathers have the same parts of rows, whatever the plan of a rank.
    GemmLayer sizes = layer_;
    if (gathers) sizes.width = call.width;
    for (const std::size_t size : {call.rows, call.width, call.depth}) detail::intOf(size);
    const CutlassGemmPlan plan = planCutlassGemm(place, sizes, call.rows);
    // An all-gather begins with own rows, an exchange with those of other ranks.
    const auto rowTiles = static_cast<int>(ceilDivide(call.rows, std::size_t{cutlassGemmTileRows}));
    const int first = gathers ? rowTiles / ranks : rowTiles - rowTiles / ranks;
    const int swizzle = cutlassGemmSwizzle(plan.tile, detail::intOf(call.rows), detail::intOf(call.width), first,
                                           place.cutlassBlocks - plan.sendingBlocks);
    const Launch launch{place.cutlassBlocks, plan.sendingBlocks, swizzle};
    forEachKernel([&]<int tile>() {
      static_assert(std::is_same_v<Scratch, typename Kernel<tile>::Scratch>);
      constexpr int shape = tiles.tiles[tile];
      using Fusion = detail::CutlassFusion<cutlassTiles[shape], operands, gathers>;
      if (shape == plan.tile) enqueue<Kernel<tile>, Fusion>(call, launch);
    });
  }

 private:
  static Scratch scratchFor(const GemmLayer& layer, std::size_t maxRows) {
    if constexpr (gathers) {
      return Kernel<0>::scratchFor(maxRows, maxRows, layer.depth);
    } else {
      return Kernel<0>::scratchFor(maxRows, roundUp(layer.width, cutlassGemmColumns(tiles)));
    }
  }

  template <class F>
  static void forEachKernel(const F& f) {
    [&]<int... tile>(std::integer_sequence<int, tile...>) {
      (f.template operator()<tile>(), ...);
    }
    (std::make_integer_sequence<int, tiles.count>());
  }

  /// Loads the kernels, and returns how many of their blocks are resident at once on every rank.
  static int agreedBlocks(Communicator& communicator) {
    const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "FusedGemm");
    const auto all = agreement.gather("load the kernels of CUTLASS", [] {
      int own = maxBlocks;
      forEachKernel([&]<int tile>() { own = std::min(own, prepare<Kernel<tile>>()); });
      return own;
    });
    return *std::min_element(all.begin(), all.end());
  }
  /// Loads a kernel, which a capture might reject. Returns how many of its blocks are resident at once.
  template <class K>
  static int prepare() {
    constexpr auto kernel = cutlass::device_kernel<K>;
    MSCCLPP_CUDATHROW(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int{K::SharedStorageSize}));
    using Cluster = typename K::DispatchPolicy::ClusterShape;
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {cute::size<0>(Cluster{}), cute::size<1>(Cluster{}), 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(cute::size<0>(Cluster{}), static_cast<unsigned>(gpu::multiprocessors()));
    config.blockDim = K::get_block_shape();
    config.dynamicSmemBytes = K::SharedStorageSize;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    MSCCLPP_CUDATHROW(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    if (clusters < 1) throw Error("a GEMM of CUTLASS does not fit on this GPU", ErrorCode::InvalidUsage);
    return std::min(clusters * static_cast<int>(cute::size(Cluster{})), maxBlocks);
  }

  struct Launch {
    int blocks, sendingBlocks, swizzle;
  };
  template <class K, class Fusion>
  void enqueue(const FusedGemmCall& call, const Launch& launch) const {
    auto args = state_.args(call.rows);
    const auto slice =
        steppedPart(call.rows, ceilDivide(call.rows, std::size_t{ranks}), static_cast<std::size_t>(args.team.rank()));
    // TMA reads and writes rows that begin at multiples of 16 bytes. Zeros at the end of a row add nothing.
    constexpr std::size_t bytes = 16;
    const std::size_t width = roundUp(call.width, bytes / sizeof(Element));
    const std::size_t depth = roundUp(call.depth, bytes / sizeof(Operand));
    const StagedMatrix weight(Staging::Input, call.weight, {call.width, call.depth}, {width, depth}, sizeof(Operand),
                              call.stream);
    const MatrixSize scaledRows{1, gathers ? slice.size() : call.rows};
    const StagedMatrix rowScales(Staging::Input, call.inputScales, scaledRows, scaledRows, sizeof(float), call.stream);
    const std::size_t scales = call.weightScales != nullptr ? width : call.width;  // there are none: none are copied
    const StagedMatrix columnScales(Staging::Input, call.weightScales, {1, call.width}, {1, scales}, sizeof(float),
                                    call.stream);

    typename K::Arguments arguments{};
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    arguments.problem_shape = {detail::intOf(call.rows), detail::intOf(width), detail::intOf(depth), 1};
    arguments.mainloop.ptr_B = static_cast<const Operand*>(weight.data());
    arguments.mainloop.dB = {static_cast<std::int64_t>(depth), cute::Int<1>{}, 0};
    // Of instructions of fp8, whose sum is then added in fp32: in multiples of those of a step.
    constexpr std::uint32_t allInstructions = 1u << 30;
    if (layer_.fastAccumulation) arguments.mainloop.mma_promotion_interval = allInstructions;
    const auto* const ofRows = static_cast<const float*>(rowScales.data());
    const auto* const ofColumns = static_cast<const float*>(columnScales.data());
    arguments.hw_info.sm_count = launch.blocks;
    arguments.hw_info.max_active_clusters =
        launch.blocks / static_cast<int>(cute::size(typename K::DispatchPolicy::ClusterShape{}));
    arguments.scheduler.max_swizzle_size = launch.swizzle;
    arguments.scheduler.sendingBlocks = launch.sendingBlocks;
    static_assert(K::canSendForOthers, "the kernels must be able to have the sending blocks of planCutlassGemm()");
    if constexpr (gathers) {
      args.scratch.slice = ceilDivide(call.rows, std::size_t{ranks});
      const bool isWhole = args.scratch.slice % cutlassGemmTileRows == 0;
      if (isWhole && makeMatrix(static_cast<const Operand*>(call.input), slice.size(), depth).isPackAligned()) {
        arguments.mainloop.ptr_A = static_cast<const Operand*>(call.input);
        arguments.mainloop.dA = {static_cast<std::int64_t>(depth), cute::Int<1>{}, 0};
        arguments.mainloop.scales = ofRows;
      } else {
        const int rank = args.team.rank();
        const auto copyToWindow = [&](std::size_t offset, const void* from, std::size_t size) {
          if (size == 0) return;
          MSCCLPP_CUDATHROW(
              cudaMemcpyAsync(args.window.at(rank, offset), from, size, cudaMemcpyDeviceToDevice, call.stream));
        };
        copyToWindow(args.scratch.rowOffset(rank, rank, 0), call.input, slice.size() * depth * sizeof(Operand));
        copyToWindow(args.scratch.scalesOffset(rank, rank, 0), ofRows, args.scratch.scaleBytes(slice.size()));
      }
      arguments.mainloop.gather = args;
      Fusion::setScales(arguments.epilogue.thread, K::Mainloop::scalesOf(arguments.mainloop), ofColumns);
      const StagedMatrix output(Staging::Output, call.output, {call.rows, call.width}, {call.rows, width},
                                sizeof(Element), call.stream);
      arguments.epilogue.ptr_D = static_cast<Element*>(output.data());
      arguments.epilogue.dD = {static_cast<std::int64_t>(width), cute::Int<1>{}, 0};
      launchKernel<K>(arguments, call.stream);
      output.copyBack();
    } else {
      const StagedMatrix input(Staging::Input, call.input, {call.rows, call.depth}, {call.rows, depth}, sizeof(Operand),
                               call.stream);
      arguments.mainloop.ptr_A = static_cast<const Operand*>(input.data());
      arguments.mainloop.dA = {static_cast<std::int64_t>(depth), cute::Int<1>{}, 0};
      arguments.epilogue.exchange = args;
      Fusion::setScales(arguments.epilogue.thread, ofRows, ofColumns);
      const std::size_t rows = collective == GemmCollective::ReduceScatter ? slice.size() : call.rows;
      const StagedMatrix output(Staging::Output, call.output, {rows, call.width}, {rows, width}, sizeof(Element),
                                call.stream);
      arguments.epilogue.result = {makeMatrix(static_cast<bf16*>(output.data()), rows, width)};
      launchKernel<K>(arguments, call.stream);
      output.copyBack();
    }
  }

  template <class K>
  static void launchKernel(const typename K::Arguments& arguments, cudaStream_t stream) {
    using Adapter = cutlass::gemm::device::GemmUniversalAdapter<K>;
    detail::require(Adapter::can_implement(arguments));
    auto params = K::to_underlying_arguments(arguments, nullptr);
    detail::require(Adapter::run(params, stream));
  }

  GemmPlace place_;
  GemmLayer layer_;
  int blocks_;  ///< resident at once, on every rank
  CollectiveState<Exchange> state_;
};

template <GemmCollective collective, int ranks, DataType operands>
std::unique_ptr<GemmKernel> makeCutlassGemm(Communicator& communicator, const GemmPlace& place, const GemmLayer& layer,
                                            std::size_t maxRows, std::shared_ptr<WaitMonitor> monitor) {
  return std::make_unique<CutlassGemm<collective, ranks, operands>>(communicator, place, layer, maxRows,
                                                                    std::move(monitor));
}

}  // namespace mscclpp::kernels
