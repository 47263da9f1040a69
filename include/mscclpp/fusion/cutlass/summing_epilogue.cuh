// A collective epilogue of CUTLASS that sends the tiles of other ranks' rows to them, and adds up the tiles of its own
// rows in registers.
#pragma once

#include <cute/tensor.hpp>

#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/exchange_callbacks.cuh"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/cutlass/outgoing_tiles.cuh"
#include "mscclpp/fusion/cutlass/tile_queue.cuh"
#include "mscclpp/fusion/cutlass/tile_scratch.hpp"
#include "mscclpp/fusion/cutlass/with_callbacks.cuh"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {

template <class T, int Ranks>
struct ExchangeCallbacksOf {
  template <class Fusion>
  using Of = ExchangeCallbacks<Fusion, T, Ranks, TileQueue>;
};

}  // namespace detail

/// The collective epilogue `Stock` as a part of a row exchange whose reduced rows are stored as they are (StoreRows),
/// with RowDelivery::ToOwner or ToAll. It stores every tile in this rank's memory, as fast as the stock epilogue does:
///
/// - A tile of rows that another rank reduces goes to a place of its own in the scratch. Two warps that CUTLASS leaves
///   idle copy it to that rank, and announce half of it each, while the other warps compute the next tiles: they never
///   wait for the link. Or blocks that compute nothing do that (OutgoingTiles, RowExchangeKernel).
/// - A tile of rows that this rank reduces: when the other ranks, which compute it first, have announced it, their
///   contributions are added to it in registers, in rank order, and the sum goes to the output. Those of
///   the first other rank are the source C of CUTLASS's epilogue: the warp that loads C waits for them, and loads them
///   while the tile is multiplied; those of further ranks are waited for and loaded by the warps that compute. With
///   RowDelivery::ToAll the sum also goes to all other ranks, like the tile above, but from the output.
///
/// So the first hop hides behind the tiles of other ranks' rows, and the second one behind those of own rows. Stock has
/// no source C (ElementC is void: what is added once is added after the reduction), no callbacks that load tiles,
/// subtiles of a multiple of 32 columns, as CUTLASS's builder makes them, and a row-major output of Scratch::Element,
/// of 16 bits. Scratch: TileScratch, of the kernel's scratchFor(). Rows of the output begin at multiples of 16 bytes.
/// It takes two subtiles more of shared memory than Stock, at most 16 KiB.
///
/// The sources of the idea are Flux (arXiv 2406.06858), and ParallelKittens (arXiv 2511.13940) for dedicated warps.
template <class Stock, int Ranks, class TileExchangeScratch>
class SummingEpilogue
    : public detail::WithSource<Stock,
                                detail::ExchangeCallbacksOf<typename TileExchangeScratch::Element, Ranks>>::Type {
 public:
  using Scratch = TileExchangeScratch;
  using T = typename Scratch::Element;
  static constexpr RowDelivery delivery = Scratch::delivery;
  static constexpr bool sharesSums = delivery == RowDelivery::ToAll;

  using Base = typename detail::WithSource<Stock, detail::ExchangeCallbacksOf<T, Ranks>>::Type;
  using Fusion = typename Stock::FusionCallbacks;
  using ExchangeArgs = CollectiveArgs<Ranks, Scratch>;
  using Result = StoreRows<T>;
  using typename Base::CtaTileMNK;
  using typename Base::ElementD;
  using typename Base::TensorStorage;
  using OutgoingTiles = detail::OutgoingTiles<Ranks, Scratch, cute::size<0>(CtaTileMNK{}), cute::size<1>(CtaTileMNK{})>;
  using Tiles = typename OutgoingTiles::Tiles;
  static_assert(Ranks > 1, "fix the number of ranks");
  static_assert(delivery != RowDelivery::Redundant, "in one hop every rank needs all contributions");
  static_assert(cute::is_void_v<typename Stock::ElementC>,
                "build the epilogue with ElementC = void: each rank would add C; add it after the reduction instead");
  static_assert(sizeof(typename Stock::ElementD) == sizeof(T),
                "the output of the epilogue must have the element type of the scratch");
  static_assert(Tiles::tileColumns >= Scratch::leastTileColumns);
  static constexpr int tileRowBytes = OutgoingTiles::tileRowBytes, tileBytes = OutgoingTiles::tileBytes;

  /// The scratch for problems of up to `rows` rows and exactly `columns` columns.
  static Scratch scratchFor(std::size_t rows, std::size_t columns) {
    const std::size_t padded = roundUp(columns, std::size_t{Tiles::tileColumns});
    return {{roundUp(rows, std::size_t{Tiles::tileRows}), padded, sharesSums ? padded * sizeof(T) : 0, Tiles::tileRows,
             Ranks}};
  }

  struct Arguments {
    typename Fusion::Arguments thread{};  ///< as for Stock
    ExchangeArgs exchange{};              ///< count: the rows of the problem
    Result result{};
  };
  struct Params {
    typename Base::Params output;   ///< adds contributions to tiles, and stores them in this rank's output
    typename Base::Params staging;  ///< stores tiles where they wait
    typename OutgoingTiles::SumLoads sumLoads;
    ExchangeArgs exchange;
    Result result;
    int outputRows;      ///< of this rank
    int tilesPerSlot;    ///< of the contributions of a rank to a call: it takes divisions
    int stagedTiles;     ///< that can wait
    bool sendsOwnTiles;  ///< whether each block sends its own tiles; else sending blocks do
    std::uint32_t tma_transaction_bytes;
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments, void* workspace) {
    const auto shape = cute::append<4>(problem, 1);
    const ExchangeArgs& exchange = arguments.exchange;
    const int rank = exchange.team.rank();
    Params params{};
    params.exchange = exchange;
    params.result = arguments.result;
    params.outputRows = static_cast<int>(Tiles::outputRows(exchange.count, rank).size());
    const auto make = [&](const auto& stored, void* memory, std::size_t pitch) {
      typename Base::Arguments to{};
      to.thread = arguments.thread;
      to.ptr_C = to.ptr_D = static_cast<ElementD*>(memory);
      cute::get<0>(to.dC) = cute::get<0>(to.dD) = static_cast<std::int64_t>(pitch);
      auto made = Base::to_underlying_arguments(stored, to, workspace);
      made.thread = Base::FusionCallbacks::to_underlying_arguments(problem, arguments.thread, workspace);
      return made;
    };
    const auto& output = arguments.result.output;
    // A rank without rows stores none.
    params.output = make(storedShape(shape, params.outputRows > 0 ? params.outputRows : 1, columnsOf(shape)),
                         output.data, output.pitch);
    params.tilesPerSlot = static_cast<int>(exchange.scratch.contributionOffset(0, 0, 1) / tileBytes);
    params.output.tma_load_c =
        make(tilesShape(shape, contributedTiles(params)), exchange.window.at(rank, 0), Tiles::tileColumns).tma_load_c;
    params.output.thread.hasSource = true;
    params.sendsOwnTiles = true;
    params.stagedTiles = static_cast<int>(exchange.scratch.stagingBytes() / tileBytes);
    params.staging = make(tilesShape(shape, params.stagedTiles),
                          exchange.window.at(rank, exchange.scratch.stagingOffset()), Tiles::tileColumns);
    params.sumLoads = OutgoingTiles::makeSumLoads(params.result, exchange.count, columnsOf(shape));
    params.tma_transaction_bytes = params.output.tma_transaction_bytes;
    return params;
  }
  /// Also whether the output has the right alignment.
  template <class ProblemShape>
  static bool can_implement(const ProblemShape& problem, const Arguments& arguments) {
    const auto shape = cute::append<4>(problem, 1);
    typename Stock::Arguments stored{};
    stored.thread = arguments.thread;
    cute::get<0>(stored.dD) = static_cast<std::int64_t>(cute::get<1>(shape));
    return cute::get<3>(shape) == 1 && arguments.result.output.isPackAligned() && Stock::can_implement(shape, stored);
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
    Base::prefetch_tma_descriptors(params.output);
    Base::prefetch_tma_descriptors(params.staging);
  }

  CUTLASS_DEVICE SummingEpilogue(const Params& params, TensorStorage& shared)
      : Base(params.output, shared),
        params_(params),
        tiles_(params.exchange, params.result,
               {params.exchange, shared.thread.queue.epoch(), shared.thread.queue.hasStopped()}) {}

  /// Called by one thread before the warps take their roles, before a sync of the block.
  CUTLASS_DEVICE static void initShared(const Params& params, TensorStorage& shared) {
    const RowContribution call = makeRowContribution(detail::consumerGrid(), params.exchange);
    shared.thread.queue.init(call.epoch(), call.hasStopped());
  }

  /// By the warp that loads C: waits for the contributions to a tile of own rows, and loads those of the first other
  /// rank. For every other tile it completes the stages of the pipeline with nothing in them.
  CUTLASS_DEVICE bool is_producer_load_needed() const { return true; }
  template <class LoadPipeline, class LoadState, class ProblemShape, class TileShape, class TileCoordinates,
            class TiledMma>
  CUTLASS_DEVICE auto load(LoadPipeline pipeline, LoadState state, ProblemShape problem, TileShape tileShape,
                           TileCoordinates at, TiledMma tiledMma, int thread, TensorStorage& shared, int subtile = -1) {
    const TileCoordinate place = coordinateOf(at);
    const std::size_t block = tiles_.blockOf(place);
    const bool isSum = tiles_.takesPart(place, columnsOf(problem)) && tiles_.sums(block);
    int contributed = 0;
    if (isSum) {
      contributed = contributedTile(problem, block, place.column);
      awaitTile(tiles_.contribution(), params_.exchange, gpu::Grid().blockIndex(), block,
                static_cast<std::size_t>(place.column));
      arch::bulkFenceGlobal();  // TMA reads what stores of another rank wrote, ordinary ones or bulk copies
    }
    Base epilogue(isSum ? params_.output : params_.staging, shared);
    return epilogue.load(pipeline, state, tilesShape(problem, contributedTiles(params_)), tileShape,
                         cute::make_coord(contributed, 0, 0, 0), tiledMma, thread, shared, subtile);
  }

  /// As the epilogue's of CUTLASS, by the warps that hold the accumulators.
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState, class ProblemShape,
            class TileShape, class TileCoordinates, class Accumulators, class TiledMma>
  CUTLASS_DEVICE auto store(LoadPipeline loadPipeline, LoadState loadState, StorePipeline storePipeline,
                            StoreState storeState, ProblemShape problem, TileShape tileShape, TileCoordinates at,
                            const Accumulators& accumulators, TiledMma tiledMma, int thread, TensorStorage& shared,
                            int subtile = -1) {
    const TileCoordinate place = coordinateOf(at);
    const std::size_t block = tiles_.blockOf(place);
    const bool takesPart = tiles_.takesPart(place, columnsOf(problem)), isSum = takesPart && tiles_.sums(block);
    ExchangedTile tile{place.row, place.column};
    int row = params_.stagedTiles, column = 0;  // beyond the memory: what is not stored
    if (isSum) {
      locateContributions(problem, block, tile);
      row = sharesSums ? tile.row : static_cast<int>(Scratch::Owners::index(block, Ranks));
      column = tile.column;
    } else if (takesPart) {
      row = OutgoingTiles::stagedTile(block, place.column, columnsOf(problem));
    }
    Base epilogue(isSum ? params_.output : params_.staging, shared);
    const auto shape =
        isSum ? storedShape(problem, params_.outputRows, columnsOf(problem)) : tilesShape(problem, params_.stagedTiles);
    auto [nextLoad, nextStore] =
        epilogue.store(loadPipeline, loadState, storePipeline, storeState, shape, tileShape,
                       cute::make_coord(row, column, tile, 0), accumulators, tiledMma, thread, shared, subtile);
    // The next tile's epilogue is another object.
    auto [endLoad, endStore] = epilogue.store_tail(loadPipeline, nextLoad, storePipeline, nextStore);
    // At once: the rank that gets the tile may wait for it. The first warp of a group issues its stores.
    if (takesPart && tiles_.areSent(block) && thread < gpu::WarpTile<>::width) {
      if (params_.sendsOwnTiles) {
        shared.thread.queue.template give<TiledMma>(++given_);
      } else {
        tiles_.give(block, place);
      }
    }
    return cute::make_tuple(endLoad, endStore);
  }
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState>
  CUTLASS_DEVICE auto store_tail(LoadPipeline /*loadPipeline*/, LoadState loadState, StorePipeline /*storePipeline*/,
                                 StoreState storeState) {
    return cute::make_tuple(loadState, storeState);
  }

  /// After the last tile, by the warps of the consumers of blocks that compute tiles: stores the results of other
  /// ranks, tile by tile in the order in which their ranks compute them. If a wait fails, so does the call.
  template <class Exchange, class TileScheduler, class ProblemShape>
  CUTLASS_DEVICE static void collect(const Params& params, const gpu::WarpGrid& grid, Exchange& exchange,
                                     const TileScheduler& scheduler, const ProblemShape& problem) {
    const auto& team = params.exchange.team;
    const auto warp = static_cast<std::uint32_t>(grid.warpIndex());
    const std::uint32_t stride = static_cast<std::uint32_t>(grid.warpCount()) * scheduler.clusters();
    MSCCLPP_NO_UNROLL
    for (std::uint32_t i = warp * scheduler.clusters() + scheduler.cluster();; i += stride) {
      MSCCLPP_NO_UNROLL
      for (int peer = 0; peer < team.size() - 1; ++peer) {
        const int rank = team.peer(peer);
        const auto work = scheduler.tileOfCluster(i / collectedPieces, rank);
        if (!work.is_valid()) return;
        const TileCoordinate at{work.M_idx, work.N_idx};
        if (!Tiles::contain(at, params.exchange.count, columnsOf(problem))) continue;
        const std::size_t block = Tiles::blocksOf(params.exchange.count).blockOf(static_cast<std::uint32_t>(at.row));
        if (exchange.owner(block) != rank) continue;
        if (!awaitTile(exchange, params.exchange, grid.blockIndex(), block, static_cast<std::size_t>(at.column))) {
          return;
        }
        storeResult(params, exchange.epoch(), block, at, columnsOf(problem), i % collectedPieces);
      }
    }
  }

 private:
  template <class Shape>
  static CUTLASS_HOST_DEVICE int columnsOf(const Shape& shape) {
    return static_cast<int>(cute::get<1>(shape));
  }
  template <class TileCoordinates>
  static CUTLASS_DEVICE TileCoordinate coordinateOf(const TileCoordinates& at) {
    return {static_cast<int>(cute::get<0>(at)), static_cast<int>(cute::get<1>(at))};
  }
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto storedShape(const Shape& shape, int rows, int columns) {
    return cute::make_shape(rows, columns, static_cast<int>(cute::get<2>(shape)), 1);
  }
  /// Of tiles one after the other.
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto tilesShape(const Shape& shape, int tiles) {
    return storedShape(shape, tiles * Tiles::tileRows, int{Tiles::tileColumns});
  }
  /// The tiles that contributions have room for: two calls, those of each rank.
  static CUTLASS_HOST_DEVICE int contributedTiles(const Params& params) { return 2 * Ranks * params.tilesPerSlot; }
  /// The tile of the contributions that the first other rank makes to a tile of own rows.
  template <class ProblemShape>
  CUTLASS_DEVICE int contributedTile(const ProblemShape& problem, std::size_t block, int column) const {
    const auto& args = params_.exchange;
    const auto slot =
        static_cast<int>(args.scratch.slotSet(tiles_.contribution().epoch(), args.team.rank() == 0 ? 1 : 0));
    const auto index = static_cast<int>(Scratch::Owners::index(block, Ranks));
    return slot * params_.tilesPerSlot + index * static_cast<int>(Tiles::columnTilesOf(columnsOf(problem))) + column;
  }

  /// A warp stores a piece of a result at a time, by loads that are in flight together.
  static constexpr std::uint32_t collectedBytes = 8 * gpu::WarpTile<>::width * sizeof(Word128);
  static constexpr std::uint32_t collectedPieces = tileBytes / collectedBytes;
  static_assert(tileBytes % collectedBytes == 0);

  /// Stores a piece of the result of another rank in the output. Called by all lanes of a warp.
  CUTLASS_DEVICE static void storeResult(const Params& params, std::uint64_t epoch, std::size_t block,
                                         TileCoordinate at, int columns, std::uint32_t piece) {
    constexpr std::uint32_t loadBytes = gpu::WarpTile<>::width * sizeof(Word128), loads = collectedBytes / loadBytes;
    const auto& args = params.exchange;
    const std::byte* const from = args.window.at(
        args.team.rank(), args.scratch.resultTileOffset(epoch, block, static_cast<std::size_t>(at.column),
                                                        Tiles::columnTilesOf(columns), tileBytes));
    const std::uint32_t first =
        piece * collectedBytes + static_cast<std::uint32_t>(gpu::WarpTile<>().rank()) * sizeof(Word128);
    Word128 words[loads];
    MSCCLPP_UNROLL
    for (std::uint32_t j = 0; j < loads; ++j) words[j] = arch::loadWide(from + first + j * loadBytes);
    MSCCLPP_UNROLL
    for (std::uint32_t j = 0; j < loads; ++j) {
      const std::uint32_t byte = first + j * loadBytes;
      const std::size_t row = static_cast<std::size_t>(at.row) * Tiles::tileRows + byte / tileRowBytes;
      if (row >= args.count) continue;
      params.result.store({row, static_cast<std::size_t>(at.column) * Tiles::tileColumns}, byte % tileRowBytes,
                          words[j]);
    }
  }

  /// Waits for the other ranks' contributions to a tile of own rows, or for the result of another one. Called by all
  /// lanes of a warp. After a failure what follows is meaningless.
  template <class Contribution>
  CUTLASS_DEVICE static bool awaitTile(const Contribution& contribution, const ExchangeArgs& args, int blockIndex,
                                       std::size_t block, std::size_t index) {
    auto wait = args.wait;
    const auto flagOf = [&](int from) { return args.scratch.flagOffset(block, from, index); };
    return contribution.awaitPiece(gpu::WarpTile<>{}, wait, blockIndex, block, Scratch::parts, flagOf);
  }
  /// Where the contributions are of ranks beyond the first other one, which are loaded before the first subtile of C
  /// has arrived: so they are waited for here.
  template <class ProblemShape>
  CUTLASS_DEVICE void locateContributions(const ProblemShape& problem, std::size_t block, ExchangedTile& tile) const {
    const auto& args = params_.exchange;
    tile.rank = args.team.rank();
    if constexpr (Ranks > 2) {
      const auto index = static_cast<std::size_t>(tile.column);
      awaitTile(tiles_.contribution(), args, gpu::Grid().blockIndex(), block, index);
      tile.contributions =
          args.window.at(tile.rank, args.scratch.tileOffset(tiles_.contribution().epoch(), block, 0, index,
                                                            Tiles::columnTilesOf(columnsOf(problem)), tileBytes));
      tile.perRank = args.scratch.contributionOffset(0, 0, 1);
    }
  }

  const Params& params_;
  const OutgoingTiles tiles_;
  unsigned given_ = 0;  ///< tiles that this group of warps has stored to be sent
};

}  // namespace mscclpp
