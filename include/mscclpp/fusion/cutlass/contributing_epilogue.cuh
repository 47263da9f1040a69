// A collective epilogue of CUTLASS that contributes the tiles of a GEMM to a row exchange, from shared memory by TMA.
#pragma once

#include <cute/tensor.hpp>

#include "mscclpp/basic/group.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/cutlass/slot_coordinates.cuh"
#include "mscclpp/fusion/cutlass/tile_blocks.hpp"
#include "mscclpp/fusion/cutlass/tile_handover.cuh"
#include "mscclpp/fusion/cutlass/with_callbacks.cuh"

namespace mscclpp {

namespace detail {

template <class Scratch, int Ranks>
struct SlotCoordinatesOf {
  template <class Fusion>
  using Of = SlotCoordinates<Fusion, TileBlocks<Scratch::delivery, typename Scratch::Owners>, Ranks>;
};

}  // namespace detail

/// The collective epilogue `Stock` with its output sent into the slots of a row exchange: same registers, same shared
/// memory, same TMA stores, to the rank that reduces the tile's rows (with RowDelivery::Redundant, to every rank, one
/// after the other). The warp that loads C in other epilogues publishes each tile, as one part of its block of rows: a
/// release takes as long as the link, and no other warp waits for it. The warp that issues a tile's stores tells it
/// when they are complete: after the tile in a pingpong kernel, where the other warp group computes meanwhile; in a
/// cooperative kernel before the stores of its next tile.
///
/// Stock has no source C (ElementC is void: what is added once is added after the reduction), no callbacks that load
/// tiles, and a row-major output of Scratch::Element. Ranks: the number of ranks, fixed. Result: what becomes of the
/// reduced rows (fusion/gemm/row_result.hpp). The scratch is one of GemmRowExchange::scratchFor(): a block is the rows
/// of one tile, and each row of the output consists of one or several rows of the scratch.
template <class Stock, int Ranks, class Scratch, class Result>
class ContributingEpilogue : public detail::WithCallbacks<Stock, detail::SlotCoordinatesOf<Scratch, Ranks>>::Type {
 public:
  using Base = typename detail::WithCallbacks<Stock, detail::SlotCoordinatesOf<Scratch, Ranks>>::Type;
  using Fusion = typename Stock::FusionCallbacks;
  using ExchangeArgs = CollectiveArgs<Ranks, Scratch>;
  using typename Base::CtaTileMNK;
  using typename Base::ElementD;
  using typename Base::StrideD;
  using typename Base::TensorStorage;
  static_assert(Ranks > 0, "fix the number of ranks: the kernel has a TMA descriptor for each");
  static_assert(cute::is_void_v<typename Stock::ElementC>,
                "build the epilogue with ElementC = void: each rank would add C; add it after the reduction instead");
  static_assert(sizeof(typename Stock::ElementD) == sizeof(typename Scratch::Element),
                "the output of the epilogue must have the element type of the scratch");
  using Tiles = ExchangeTiles<Ranks, Scratch, cute::size<0>(CtaTileMNK{}), cute::size<1>(CtaTileMNK{})>;

  struct Arguments {
    typename Fusion::Arguments thread{};  ///< as for Stock
    ExchangeArgs exchange{};              ///< count: the rows of the problem
    Result result{};
  };
  struct Params {
    typename Base::Params owners[Ranks];
    ExchangeArgs exchange;
    Result result;
    int slotRows;  ///< of the slots of a rank in a call; it takes divisions
    std::uint32_t tma_transaction_bytes;
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments, void* workspace) {
    const auto shape = cute::append<4>(problem, 1);
    Params params{};
    for (int owner = 0; owner < Ranks; ++owner) {
      typename Base::Arguments slots{};
      slots.thread = arguments.thread;
      slots.ptr_D = reinterpret_cast<ElementD*>(arguments.exchange.window.base[owner]);
      slots.dD = strideOf(shape, arguments.exchange.scratch);
      auto& to = params.owners[owner];
      to = Base::to_underlying_arguments(slotShape(shape, slotRowsOf(arguments.exchange.scratch)), slots, workspace);
      to.thread = Base::FusionCallbacks::to_underlying_arguments(problem, arguments.thread, workspace);
      to.thread.owner = owner;
    }
    params.exchange = arguments.exchange;
    params.result = arguments.result;
    params.slotRows = slotRowsOf(arguments.exchange.scratch);
    params.tma_transaction_bytes = params.owners[0].tma_transaction_bytes;
    return params;
  }
  /// Whether the scratch fits the problem, the kernel says (RowExchangeKernel).
  template <class ProblemShape>
  static bool can_implement(const ProblemShape& problem, const Arguments& arguments) {
    const auto shape = cute::append<4>(problem, 1);
    const auto& scratch = arguments.exchange.scratch;
    if (cute::get<3>(shape) != 1) return false;
    typename Base::Arguments slots{};
    slots.thread = arguments.thread;
    slots.dD = strideOf(shape, scratch);
    return Base::can_implement(slotShape(shape, slotRowsOf(scratch)), slots);
  }
  template <class ProblemShape>
  static std::size_t get_workspace_size(const ProblemShape& problem, const Arguments& arguments) {
    return Fusion::get_workspace_size(problem, arguments.thread);
  }
  template <class ProblemShape>
  static cutlass::Status initialize_workspace(const ProblemShape& problem, const Arguments& arguments, void* workspace,
                                              cudaStream_t stream, cutlass::CudaHostAdapter* adapter = nullptr) {
    return Fusion::initialize_workspace(problem, arguments.thread, workspace, stream, adapter);
  }
  CUTLASS_DEVICE static void prefetch_tma_descriptors(const Params& params) {
    for (int owner = 0; owner < Ranks; ++owner) Base::prefetch_tma_descriptors(params.owners[owner]);
  }

  CUTLASS_DEVICE ContributingEpilogue(const Params& params, TensorStorage& shared)
      : Base(params.owners[0], shared),
        params_(params),
        contribution_(makeRowContribution(detail::consumerGrid(), params.exchange)) {}

  /// There is nothing to load; the warp publishes.
  CUTLASS_DEVICE bool is_producer_load_needed() const { return true; }
  template <class LoadPipeline, class LoadState, class ProblemShape, class TileShape, class TileCoordinates,
            class TiledMma>
  CUTLASS_DEVICE auto load(LoadPipeline /*pipeline*/, LoadState state, ProblemShape problem, TileShape /*tile*/,
                           TileCoordinates at, TiledMma /*tiledMma*/, int /*thread*/, TensorStorage& /*shared*/,
                           int /*subtile*/ = -1) {
    const int group = handover_.template nextGroup<TiledMma>();
    if (!contributes(problem, at)) return state;
    detail::TileHandover::take(group);
    const auto tile = static_cast<std::uint32_t>(cute::get<0>(at));
    contribution_.publish(gpu::WarpTile<>{}, Tiles::blocksOf(params_.exchange.count).blockOf(tile));
    return state;
  }
  template <class LoadPipeline, class LoadState>
  CUTLASS_DEVICE auto load_tail(LoadPipeline /*pipeline*/, LoadState state) {
    return state;
  }

  /// As the epilogue's of CUTLASS, by the warps that hold the accumulators.
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState, class ProblemShape,
            class TileShape, class TileCoordinates, class Accumulators, class TiledMma>
  CUTLASS_DEVICE auto store(LoadPipeline loadPipeline, LoadState loadState, StorePipeline storePipeline,
                            StoreState storeState, ProblemShape problem, TileShape tileShape, TileCoordinates at,
                            const Accumulators& accumulators, TiledMma tiledMma, int thread, TensorStorage& shared,
                            int subtile = -1) {
    const auto tile = static_cast<std::uint32_t>(cute::get<0>(at));
    const auto blocks = Tiles::blocksOf(params_.exchange.count);
    if (!contributes(problem, at)) return cute::make_tuple(loadState, storeState);
    const std::size_t block = blocks.blockOf(tile);
    const auto slotAt = cute::make_coord(static_cast<int>(blocks.slotOf(tile)), static_cast<int>(cute::get<1>(at)),
                                         cute::_, static_cast<int>(contribution_.slotSet()));
    constexpr bool isRedundant = Scratch::delivery == RowDelivery::Redundant;
    const int first = isRedundant ? params_.exchange.team.rank() : contribution_.owner(block);
    handover_.give();
    MSCCLPP_NO_UNROLL
    for (int i = 0; i < (isRedundant ? Ranks : 1); ++i) {
      Base toOwner(params_.owners[first + i < Ranks ? first + i : first + i - Ranks], shared);
      auto [nextLoad, nextStore] =
          toOwner.store(loadPipeline, loadState, storePipeline, storeState, slotShape(problem, params_.slotRows),
                        tileShape, slotAt, accumulators, tiledMma, thread, shared, subtile);
      loadState = nextLoad;
      storeState = nextStore;
    }
    handover_.template note<TiledMma>(thread < gpu::WarpTile<>::width);
    return cute::make_tuple(loadState, storeState);
  }
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState>
  CUTLASS_DEVICE auto store_tail(LoadPipeline loadPipeline, LoadState loadState, StorePipeline storePipeline,
                                 StoreState storeState) {
    handover_.give();
    return Base::store_tail(loadPipeline, loadState, storePipeline, storeState);
  }

 private:
  template <class ProblemShape, class TileCoordinates>
  CUTLASS_DEVICE bool contributes(const ProblemShape& problem, const TileCoordinates& at) const {
    return Tiles::contain({cute::get<0>(at), cute::get<1>(at)}, params_.exchange.count, cute::get<1>(problem)) &&
           !contribution_.hasStopped();
  }
  /// Rows, columns and sets of the slots of one owner: two calls, the contributions of each rank.
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto slotShape(const Shape& shape, int slotRows) {
    return cute::make_shape(slotRows, static_cast<int>(cute::get<1>(shape)), static_cast<int>(cute::get<2>(shape)),
                            2 * Ranks);
  }
  static int slotRowsOf(const Scratch& scratch) { return static_cast<int>(scratch.reducedBlocks() * Tiles::tileRows); }
  template <class Shape>
  static StrideD strideOf(const Shape& shape, const Scratch& scratch) {
    StrideD stride{};
    cute::get<0>(stride) = cute::get<1>(shape);
    cute::get<2>(stride) = static_cast<std::int64_t>(scratch.reducedBlocks()) * Tiles::tileRows *
                           static_cast<std::int64_t>(cute::get<1>(shape));
    return stride;
  }
  const Params& params_;
  const RowContribution<Ranks, Scratch> contribution_;
  detail::TileHandover handover_;
};

}  // namespace mscclpp
