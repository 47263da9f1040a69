// A collective epilogue of CUTLASS that contributes the tiles of a GEMM to a row exchange, from shared memory by TMA.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_epilogue.hpp>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/exchange_callbacks.cuh"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {

/// The collective epilogue `Stock` with its callbacks as ExchangeCallbacks.
template <class Stock, class T, int Ranks, bool sums>
struct WithExchangeCallbacks {
  static_assert(sizeof(Stock) == 0,
                "the epilogue must be one of cutlass::epilogue::collective::CollectiveBuilder for Sm90 with the "
                "schedule TmaWarpSpecialized or TmaWarpSpecializedCooperative");
};
template <class Policy, class Tile, class EpilogueTile, class ElementC, class StrideC, class ElementD, class StrideD,
          class Fusion, class... Rest, class T, int Ranks, bool sums>
struct WithExchangeCallbacks<cutlass::epilogue::collective::CollectiveEpilogue<
                                 Policy, Tile, EpilogueTile, ElementC, StrideC, ElementD, StrideD, Fusion, Rest...>,
                             T, Ranks, sums> {
  using Type =
      cutlass::epilogue::collective::CollectiveEpilogue<Policy, Tile, EpilogueTile, ElementC, StrideC, ElementD,
                                                        StrideD, ExchangeCallbacks<Fusion, T, Ranks, sums>, Rest...>;
};

/// Whether a rank adds up the tiles of the rows that it reduces in registers, as it computes them, and stores the sums:
/// if every element is stored as it is. What needs whole rows is reduced from memory, after the last tile.
template <class Scratch, class Result>
inline constexpr bool sumsTiles = false;
template <class Scratch>
inline constexpr bool sumsTiles<Scratch, StoreRows<typename Scratch::Element>> =
    Scratch::delivery != RowDelivery::Redundant;

}  // namespace detail

/// The collective epilogue `Stock` with its output sent into the slots of a row exchange: same registers, same shared
/// memory, same TMA stores, to the rank that reduces the tile's rows (with RowDelivery::Redundant, to every rank, one
/// after the other). The warp that loads C in other epilogues publishes each tile, as one part of its block of rows: a
/// release takes as long as the link, and no other warp waits for it. The warp that issues a tile's stores tells it
/// when they are complete: after the tile in a pingpong kernel, where the other warp group computes meanwhile; in a
/// cooperative kernel before the stores of its next tile.
///
/// A tile of the rows that this rank reduces needs no slot if Result is StoreRows (detail::sumsTiles): when the other
/// ranks have published that block of rows, which they compute first, their contributions are added to it in registers,
/// and the sum goes to the output and, with RowDelivery::ToAll, to the results of all ranks.
///
/// Stock has no source C (ElementC is void: what is added once is added after the reduction), no callbacks that load
/// tiles, and a row-major output of Scratch::Element. Ranks: the number of ranks, fixed. Result: what becomes of the
/// reduced rows (fusion/gemm/row_result.hpp); the rows of a StoreRows begin at multiples of 16 bytes. The scratch is one
/// of GemmRowExchange::scratchFor(): a block is the rows of one tile, and each row of the output consists of one or
/// several rows of the scratch.
template <class Stock, int Ranks, class Scratch, class Result>
class ContributingEpilogue : public detail::WithExchangeCallbacks<Stock, typename Scratch::Element, Ranks,
                                                                  detail::sumsTiles<Scratch, Result>>::Type {
 public:
  static constexpr bool sumsTiles = detail::sumsTiles<Scratch, Result>;
  using Base = typename detail::WithExchangeCallbacks<Stock, typename Scratch::Element, Ranks, sumsTiles>::Type;
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
  /// Whether summed tiles go to other ranks too.
  static constexpr bool sharesTiles = sumsTiles && Scratch::delivery == RowDelivery::ToAll;
  using Tiles = ExchangeTiles<Ranks, Scratch, cute::size<0>(CtaTileMNK{}), cute::size<1>(CtaTileMNK{})>;

  struct Arguments {
    typename Fusion::Arguments thread{};  ///< as for Stock
    ExchangeArgs exchange{};              ///< count: the rows of the problem
    Result result{};
  };
  struct Params {
    /// Where tiles are stored: in the slots of each rank; if tiles are summed up, of this rank in the output.
    typename Base::Params owners[Ranks];
    /// And the results of each other rank, of summed tiles with RowDelivery::ToAll.
    typename Base::Params results[sharesTiles ? Ranks : 1];
    ExchangeArgs exchange;
    Result result;
    int slotRows;    ///< of the slots of a rank in a call; it takes divisions
    int outputRows;  ///< of this rank
    int resultRows;  ///< of a set of results
    std::uint32_t tma_transaction_bytes;
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments, void* workspace) {
    const auto shape = cute::append<4>(problem, 1);
    const ExchangeArgs& exchange = arguments.exchange;
    Params params{};
    params.exchange = exchange;
    params.result = arguments.result;
    params.slotRows = slotRowsOf(exchange.scratch);
    params.outputRows = static_cast<int>(Tiles::outputRows(exchange.count, exchange.team.rank()).size());
    params.resultRows = static_cast<int>(exchange.scratch.rows / Tiles::partsOf(exchange.scratch));
    const auto make = [&](const auto& stored, void* memory, std::int64_t pitch, std::int64_t perSet) {
      typename Base::Arguments to{};
      to.thread = arguments.thread;
      to.ptr_D = static_cast<ElementD*>(memory);
      cute::get<0>(to.dD) = pitch;
      cute::get<2>(to.dD) = perSet;
      auto made = Base::to_underlying_arguments(stored, to, workspace);
      made.thread = Base::FusionCallbacks::to_underlying_arguments(problem, arguments.thread, workspace);
      return made;
    };
    const auto columns = static_cast<std::int64_t>(cute::get<1>(shape));
    for (int owner = 0; owner < Ranks; ++owner) {
      if constexpr (sumsTiles) {
        if (owner == exchange.team.rank()) {
          const auto& output = arguments.result.output;
          // A rank without rows stores none.
          params.owners[owner] = make(outputShape(shape, params.outputRows > 0 ? params.outputRows : 1), output.data,
                                      static_cast<std::int64_t>(output.pitch), 0);
          continue;
        }
      }
      params.owners[owner] =
          make(slotShape(shape, params.slotRows), exchange.window.base[owner], columns, params.slotRows * columns);
      if constexpr (sharesTiles) {
        params.results[owner] =
            make(resultShape(shape, params.resultRows), exchange.window.at(owner, exchange.scratch.resultOffset(0, 0)),
                 columns, params.resultRows * columns);
      }
    }
    params.tma_transaction_bytes = params.owners[0].tma_transaction_bytes;
    return params;
  }
  /// Whether the scratch fits the problem, the kernel says (RowExchangeKernel).
  template <class ProblemShape>
  static bool can_implement(const ProblemShape& problem, const Arguments& arguments) {
    const auto shape = cute::append<4>(problem, 1);
    const auto& scratch = arguments.exchange.scratch;
    if (cute::get<3>(shape) != 1) return false;
    if constexpr (sumsTiles) {
      if (!arguments.result.output.isPackAligned()) return false;
    }
    const auto columns = static_cast<std::int64_t>(cute::get<1>(shape));
    typename Base::Arguments slots{};
    slots.thread = arguments.thread;
    cute::get<0>(slots.dD) = columns;
    cute::get<2>(slots.dD) = slotRowsOf(scratch) * columns;
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
    const int group = static_cast<int>(tiles_++ % storingGroups<TiledMma>);
    if (!contributes(problem, at)) return state;
    const auto tile = static_cast<std::uint32_t>(cute::get<0>(at));
    const std::size_t block = Tiles::blocksOf(params_.exchange.count).blockOf(tile);
    const bool isSum = sumsTile(block);
    if (isSum && !sharesTiles) return state;  // it stays on this rank
    arch::namedBarrierArrive(isReady(group), handoverThreads);
    arch::namedBarrierSync(isStored(group), handoverThreads);
    if (isSum) {
      contribution_.publishResult(gpu::WarpTile<>{}, block);
    } else {
      contribution_.publish(gpu::WarpTile<>{}, block);
    }
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
    const int column = static_cast<int>(cute::get<1>(at));
    const int rank = params_.exchange.team.rank();
    const bool isSum = sumsTile(block);
    ExchangedTile exchanged{static_cast<int>(tile)};
    if (isSum) exchanged = awaitedTile(problem, block, tile, column);
    constexpr bool isRedundant = Scratch::delivery == RowDelivery::Redundant;
    const int first = isRedundant ? rank : contribution_.owner(block);
    handOver();
    const int copies = isRedundant || (isSum && sharesTiles) ? Ranks : 1;
    MSCCLPP_NO_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int to = first + i < Ranks ? first + i : first + i - Ranks;
      const auto* where = &params_.owners[to];
      auto shape = slotShape(problem, params_.slotRows);
      int row = static_cast<int>(blocks.slotOf(tile));
      int set = static_cast<int>(contribution_.slotSet());
      if (isSum) {
        const bool isOwn = i == 0;
        if (sharesTiles && !isOwn) where = &params_.results[to];
        shape = isOwn ? outputShape(problem, params_.outputRows) : resultShape(problem, params_.resultRows);
        row = sharesTiles ? static_cast<int>(tile) : row;
        set = isOwn ? 0 : static_cast<int>(contribution_.resultSet());
      }
      Base epilogue(*where, shared);
      auto [nextLoad, nextStore] = epilogue.store(loadPipeline, loadState, storePipeline, storeState, shape, tileShape,
                                                  cute::make_coord(row, column, exchanged, set), accumulators, tiledMma,
                                                  thread, shared, subtile);
      loadState = nextLoad;
      storeState = nextStore;
    }
    // The warp that issues the stores is the first one.
    hasStored_ = thread < gpu::WarpTile<>::width && (!isSum || sharesTiles);
    group_ = storingGroups<TiledMma> == 1 ? 0 : cutlass::canonical_warp_group_idx() - 1;
    return cute::make_tuple(loadState, storeState);
  }
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState>
  CUTLASS_DEVICE auto store_tail(LoadPipeline loadPipeline, LoadState loadState, StorePipeline storePipeline,
                                 StoreState storeState) {
    handOver();
    return Base::store_tail(loadPipeline, loadState, storePipeline, storeState);
  }

 private:
  // Barriers by which a tile passes from the warp that stored it to the one that publishes it. Two groups of warps take
  // turns with tiles in a pingpong kernel, where one has 128 threads.
  static constexpr int handoverThreads = 2 * gpu::WarpTile<>::width;
  static CUTLASS_DEVICE int isReady(int group) { return detail::consumerBarriers().specialized(group); }
  static CUTLASS_DEVICE int isStored(int group) { return detail::consumerBarriers().specialized(2 + group); }
  template <class TiledMma>
  static constexpr int storingGroups = cute::size(TiledMma{}) == 128 ? 2 : 1;

  template <class ProblemShape, class TileCoordinates>
  CUTLASS_DEVICE bool contributes(const ProblemShape& problem, const TileCoordinates& at) const {
    return Tiles::contain(cute::get<0>(at), cute::get<1>(at), params_.exchange.count, cute::get<1>(problem)) &&
           !contribution_.hasStopped();
  }
  /// By the warp that issued the stores of the last tile, when it has waited for them: it is to be published. Only the
  /// thread that issued them can wait for them.
  CUTLASS_DEVICE void handOver() {
    if (!hasStored_) return;
    hasStored_ = false;
    arch::bulkWait<0>();
    arch::namedBarrierSync(isReady(group_), handoverThreads);  // the tile before has been published, long ago
    arch::namedBarrierArrive(isStored(group_), handoverThreads);
  }

  /// Whether a tile of the block is summed up here.
  CUTLASS_DEVICE bool sumsTile(std::size_t block) const {
    return sumsTiles && contribution_.owner(block) == params_.exchange.team.rank();
  }
  /// A tile that this rank reduces, when the other ranks' contributions to it have arrived. Called by all consumer
  /// warps of the tile. A failed wait fails the call; the tile is then meaningless.
  template <class ProblemShape>
  CUTLASS_DEVICE ExchangedTile awaitedTile(const ProblemShape& problem, std::size_t block, std::uint32_t tile,
                                           int column) const {
    const auto columns = static_cast<std::uint32_t>(cute::get<1>(problem));
    auto wait = params_.exchange.wait;
    contribution_.awaitOthers(gpu::WarpTile<>{}, wait, gpu::Grid().blockIndex(), block,
                              (columns + Tiles::tileColumns - 1) / Tiles::tileColumns);
    const auto slots = contribution_.rankSlots(block);
    return {static_cast<int>(tile),
            slots.first + static_cast<std::size_t>(column) * Tiles::tileColumns * sizeof(typename Scratch::Element),
            slots.perRank, slots.pitch, params_.exchange.team.rank()};
  }

  /// Rows, columns and sets of the slots of one owner: two calls, the contributions of each rank.
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto slotShape(const Shape& shape, int slotRows) {
    return storedShape(shape, slotRows, 2 * Ranks);
  }
  static CUTLASS_HOST_DEVICE auto outputShape(const auto& shape, int rows) { return storedShape(shape, rows, 1); }
  /// Of the results at one rank, of two calls.
  static CUTLASS_HOST_DEVICE auto resultShape(const auto& shape, int rows) { return storedShape(shape, rows, 2); }
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto storedShape(const Shape& shape, int rows, int sets) {
    return cute::make_shape(rows, static_cast<int>(cute::get<1>(shape)), static_cast<int>(cute::get<2>(shape)), sets);
  }
  static int slotRowsOf(const Scratch& scratch) { return static_cast<int>(scratch.reducedBlocks() * Tiles::tileRows); }
  const Params& params_;
  const RowContribution<Ranks, Scratch> contribution_;
  bool hasStored_ = false;  ///< this warp has stored a tile and not handed it over
  int group_ = 0;           ///< of warps that store a tile, which the warp belongs to
  unsigned tiles_ = 0;      ///< that the publishing warp has seen
};

}  // namespace mscclpp
