// A collective epilogue of CUTLASS that sends the tiles of other ranks' rows to them, and adds up the tiles of its own
// rows in registers.
#pragma once

#include <cute/tensor.hpp>

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/exchange_callbacks.cuh"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/cutlass/tile_handover.cuh"
#include "mscclpp/fusion/cutlass/tile_scratch.hpp"
#include "mscclpp/fusion/cutlass/tile_sender.cuh"
#include "mscclpp/fusion/cutlass/with_callbacks.cuh"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {

template <class T, int Ranks>
struct ExchangeCallbacksOf {
  template <class Fusion>
  using Of = ExchangeCallbacks<Fusion, T, Ranks, TileSendRing>;
};

}  // namespace detail

/// The collective epilogue `Stock` as a part of a row exchange whose reduced rows are stored as they are (StoreRows),
/// with RowDelivery::ToOwner or ToAll. It stores every tile in this rank's memory, as fast as the stock epilogue does:
///
/// - A tile of rows that another rank reduces goes to memory of the block of threads. The warp that loads C in other
///   epilogues, which has nothing to load, copies it to that rank and publishes it as one part of its
///   block of rows, while the other warps compute the next tiles: they never wait for a link, unless it is slower than
///   they are for longer than a tile.
/// - A tile of rows that this rank reduces: when the other ranks have published that block of rows, which they compute
///   first, their contributions are added to it in registers, in rank order, and the sum goes to the output. With
///   RowDelivery::ToAll it also goes to all other ranks, like the tile above.
///
/// So the first hop hides behind the tiles of other ranks' rows, and the second one behind those of own rows. Stock has
/// no source C (ElementC is void: what is added once is added after the reduction), no callbacks that load tiles,
/// subtiles of a multiple of 32 columns, as CUTLASS's builder makes them, and a row-major output of Scratch::Element,
/// of 16 bits. Scratch: TileScratch, of the kernel's scratchFor(). Rows of the output begin at multiples of 16 bytes.
/// It takes sizeof(TileSendRing) bytes more of shared memory than Stock.
///
/// The sources of the idea are Flux (arXiv 2406.06858), and ParallelKittens (arXiv 2511.13940) for dedicated warps.
template <class Stock, int Ranks, class TileExchangeScratch>
class SummingEpilogue
    : public detail::WithCallbacks<Stock,
                                   detail::ExchangeCallbacksOf<typename TileExchangeScratch::Element, Ranks>>::Type {
 public:
  using Scratch = TileExchangeScratch;
  using T = typename Scratch::Element;
  static constexpr RowDelivery delivery = Scratch::delivery;
  static constexpr bool sharesSums = delivery == RowDelivery::ToAll;

  using Base = typename detail::WithCallbacks<Stock, detail::ExchangeCallbacksOf<T, Ranks>>::Type;
  using Fusion = typename Stock::FusionCallbacks;
  using ExchangeArgs = CollectiveArgs<Ranks, Scratch>;
  using Result = StoreRows<T>;
  using typename Base::CtaTileMNK;
  using typename Base::ElementD;
  using typename Base::TensorStorage;
  using Tiles = ExchangeTiles<Ranks, Scratch, cute::size<0>(CtaTileMNK{}), cute::size<1>(CtaTileMNK{})>;
  static_assert(Ranks > 1, "fix the number of ranks");
  static_assert(delivery != RowDelivery::Redundant, "in one hop every rank needs all contributions");
  static_assert(cute::is_void_v<typename Stock::ElementC>,
                "build the epilogue with ElementC = void: each rank would add C; add it after the reduction instead");
  static_assert(sizeof(typename Stock::ElementD) == sizeof(T),
                "the output of the epilogue must have the element type of the scratch");
  static_assert(Tiles::tileRows * Tiles::tileColumns * sizeof(T) % TileSendRing::pieceBytes == 0);
  static constexpr int tileBytes = Tiles::tileRows * Tiles::tileColumns * static_cast<int>(sizeof(T));

  /// The scratch for problems of up to `rows` rows and exactly `columns` columns.
  static Scratch scratchFor(std::size_t rows, std::size_t columns) {
    const std::size_t padded = roundUp(columns, std::size_t{Tiles::tileColumns});
    return {{roundUp(rows, std::size_t{Tiles::tileRows}), padded, sharesSums ? padded * sizeof(T) : 0, Tiles::tileRows,
             Ranks},
            stagingBytes};
  }

  struct Arguments {
    typename Fusion::Arguments thread{};  ///< as for Stock
    ExchangeArgs exchange{};              ///< count: the rows of the problem
    Result result{};
  };
  struct Params {
    typename Base::Params output;   ///< stores tiles in this rank's output,
    typename Base::Params staging;  ///< and in the memory of blocks
    ExchangeArgs exchange;
    Result result;
    int outputRows;  ///< of this rank
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
      to.ptr_D = static_cast<ElementD*>(memory);
      cute::get<0>(to.dD) = static_cast<std::int64_t>(pitch);
      auto made = Base::to_underlying_arguments(stored, to, workspace);
      made.thread = Base::FusionCallbacks::to_underlying_arguments(problem, arguments.thread, workspace);
      return made;
    };
    const auto& output = arguments.result.output;
    // A rank without rows stores none.
    params.output = make(storedShape(shape, params.outputRows > 0 ? params.outputRows : 1, columnsOf(shape)),
                         output.data, output.pitch);
    params.staging =
        make(stagingShape(shape), exchange.window.at(rank, exchange.scratch.stagingOffset()), Tiles::tileColumns);
    params.tma_transaction_bytes = params.output.tma_transaction_bytes;
    return params;
  }
  /// Also whether the exchange has the memory of blocks, and the output the right alignment.
  template <class ProblemShape>
  static bool can_implement(const ProblemShape& problem, const Arguments& arguments) {
    const auto shape = cute::append<4>(problem, 1);
    typename Base::Arguments stored{};
    stored.thread = arguments.thread;
    cute::get<0>(stored.dD) = static_cast<std::int64_t>(cute::get<1>(shape));
    return cute::get<3>(shape) == 1 && arguments.exchange.scratch.stagingBytes >= stagingBytes &&
           arguments.result.output.isPackAligned() && Base::can_implement(shape, stored);
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
        contribution_(makeRowContribution(detail::consumerGrid(), params.exchange)) {}

  /// There is nothing to load; the warp sends.
  CUTLASS_DEVICE bool is_producer_load_needed() const { return true; }
  template <class LoadPipeline, class LoadState, class ProblemShape, class TileShape, class TileCoordinates,
            class TiledMma>
  CUTLASS_DEVICE auto load(LoadPipeline /*pipeline*/, LoadState state, ProblemShape problem, TileShape /*tile*/,
                           TileCoordinates at, TiledMma /*tiledMma*/, int /*thread*/, TensorStorage& shared,
                           int /*subtile*/ = -1) {
    const int group = handover_.template nextGroup<TiledMma>();
    if (!takesPart(problem, at)) return state;
    const std::size_t block =
        Tiles::blocksOf(params_.exchange.count).blockOf(static_cast<std::uint32_t>(cute::get<0>(at)));
    if (!isSent(block)) return state;
    const int staged = stagedTile<TiledMma>(group, sent_[group]++);
    detail::TileHandover::take(group);
    send(problem, block, static_cast<std::size_t>(cute::get<1>(at)), staged, shared.thread.send);
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
    if (!takesPart(problem, at)) return cute::make_tuple(loadState, storeState);
    // Before this warp group waits for other ranks, which may wait for the tile before. That one has been sent then, so
    // that its memory is free for the next.
    handover_.give();
    ExchangedTile tile{static_cast<int>(cute::get<0>(at)), static_cast<int>(cute::get<1>(at))};
    const auto blocks = Tiles::blocksOf(params_.exchange.count);
    const std::size_t block = blocks.blockOf(static_cast<std::uint32_t>(tile.row));
    const bool isSum = sums(block);
    if (isSum) awaitContributions(problem, block, tile);
    const int group = handover_.template ownGroup<TiledMma>();
    const int staged = isSent(block) ? stagedTile<TiledMma>(group, stored_++) : 0;
    const int outputRow = sharesSums ? tile.row : static_cast<int>(blocks.slotOf(static_cast<std::uint32_t>(tile.row)));
    // A sum that is sent, to the output and then to the memory of the block. Without such, there is no loop.
    MSCCLPP_NO_UNROLL
    for (int pass = sharesSums && !isSum ? 1 : 0; pass < (sharesSums ? 2 : 1); ++pass) {
      const bool isOutput = sharesSums ? pass == 0 : isSum;
      Base epilogue(isOutput ? params_.output : params_.staging, shared);
      const auto shape =
          isOutput ? storedShape(problem, params_.outputRows, columnsOf(problem)) : stagingShape(problem);
      auto [nextLoad, nextStore] =
          epilogue.store(loadPipeline, loadState, storePipeline, storeState, shape, tileShape,
                         cute::make_coord(isOutput ? outputRow : staged, isOutput ? tile.column : 0, tile, 0),
                         accumulators, tiledMma, thread, shared, subtile);
      loadState = nextLoad;
      storeState = nextStore;
    }
    handover_.note(isSent(block) && thread < gpu::WarpTile<>::width);
    return cute::make_tuple(loadState, storeState);
  }
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState>
  CUTLASS_DEVICE auto store_tail(LoadPipeline loadPipeline, LoadState loadState, StorePipeline storePipeline,
                                 StoreState storeState) {
    handover_.give();
    return Base::store_tail(loadPipeline, loadState, storePipeline, storeState);
  }

  /// After the last tile, by the warps of the consumers: stores the results of other ranks. Returns whether all waits
  /// of this warp succeeded.
  template <class Exchange, class ProblemShape>
  CUTLASS_DEVICE static bool collect(const Params& params, const gpu::WarpGrid& grid, Exchange& exchange,
                                     const ProblemShape& problem) {
    if constexpr (!sharesSums) {
      return true;
    } else {
      // A warp stores some rows of a tile at a time, in loads that are in flight together.
      constexpr std::uint32_t lanesPerRow = Tiles::tileColumns * sizeof(T) / sizeof(Word128);
      constexpr std::uint32_t width = gpu::WarpTile<>::width;
      static_assert(width % lanesPerRow == 0, "a warp must hold whole rows of a tile");
      constexpr std::uint32_t rowsPerLoad = width / lanesPerRow, loads = 8, pieceRows = rowsPerLoad * loads;
      static_assert(Tiles::tileRows % pieceRows == 0);
      constexpr std::uint32_t pieces = Tiles::tileRows / pieceRows;
      const auto& args = params.exchange;
      const auto columnTiles = columnTilesOf(problem);
      const std::uint32_t all = Tiles::blocksOf(args.count).tiles * columnTiles * pieces;
      const auto lane = static_cast<std::uint32_t>(gpu::WarpTile<>().rank());
      std::uint32_t complete = ~0u;
      for (auto i = static_cast<std::uint32_t>(grid.warpIndex() * grid.blockCount() + grid.blockIndex()); i < all;
           i += static_cast<std::uint32_t>(grid.warpCount() * grid.blockCount())) {
        const std::uint32_t tile = i / pieces, block = tile / columnTiles, index = tile % columnTiles;
        if (exchange.owner(block) == args.team.rank()) continue;
        if (block != complete && !exchange.awaitResults(block, columnTiles)) return false;
        complete = block;
        const std::uint32_t first = i % pieces * pieceRows + lane / lanesPerRow;
        const std::uint32_t byte = lane % lanesPerRow * static_cast<std::uint32_t>(sizeof(Word128));
        const std::byte* const from =
            args.window.at(args.team.rank(),
                           args.scratch.resultTileOffset(exchange.epoch(), block, index, columnTiles, tileBytes)) +
            first * (lanesPerRow * sizeof(Word128)) + byte;
        Word128 words[loads];
        MSCCLPP_UNROLL
        for (std::uint32_t j = 0; j < loads; ++j) words[j] = arch::loadWide(from + j * width * sizeof(Word128));
        const RowPart part{block * std::size_t{Tiles::tileRows} + first, index * std::size_t{Tiles::tileColumns}};
        MSCCLPP_UNROLL
        for (std::uint32_t j = 0; j < loads; ++j) {
          if (part.row + j * rowsPerLoad >= args.count) continue;
          params.result.store({part.row + j * rowsPerLoad, part.column}, byte, words[j]);
        }
      }
      return true;
    }
  }

 private:
  static constexpr int mostGroups = detail::TileHandover::mostGroups;
  static constexpr std::size_t stagingTiles = std::size_t{Scratch::maxBlocks} * mostGroups * Scratch::tilesInFlight;
  static constexpr std::size_t stagingBytes = stagingTiles * tileBytes;

  template <class Shape>
  static CUTLASS_HOST_DEVICE int columnsOf(const Shape& shape) {
    return static_cast<int>(cute::get<1>(shape));
  }
  template <class Shape>
  static CUTLASS_HOST_DEVICE std::uint32_t columnTilesOf(const Shape& shape) {
    return static_cast<std::uint32_t>((columnsOf(shape) + Tiles::tileColumns - 1) / Tiles::tileColumns);
  }
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto storedShape(const Shape& shape, int rows, int columns) {
    return cute::make_shape(rows, columns, static_cast<int>(cute::get<2>(shape)), 1);
  }
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto stagingShape(const Shape& shape) {
    return storedShape(shape, static_cast<int>(stagingTiles) * Tiles::tileRows, int{Tiles::tileColumns});
  }
  /// The place of the i-th tile that a group of warps of this block sends.
  template <class TiledMma>
  static CUTLASS_DEVICE int stagedTile(int group, unsigned i) {
    return (gpu::Grid().blockIndex() * detail::TileHandover::groups<TiledMma> + group) * Scratch::tilesInFlight +
           static_cast<int>(i % Scratch::tilesInFlight);
  }

  /// Whether the tile is part of the problem: a cluster may have blocks beyond its edges.
  template <class ProblemShape, class TileCoordinates>
  CUTLASS_DEVICE bool takesPart(const ProblemShape& problem, const TileCoordinates& at) const {
    return Tiles::contain(static_cast<int>(cute::get<0>(at)), static_cast<int>(cute::get<1>(at)),
                          params_.exchange.count, columnsOf(problem)) &&
           !contribution_.hasStopped();
  }
  /// Whether tiles of a block of rows are summed up here, and whether they are sent to other ranks.
  CUTLASS_DEVICE bool sums(std::size_t block) const {
    return contribution_.owner(block) == params_.exchange.team.rank();
  }
  CUTLASS_DEVICE bool isSent(std::size_t block) const { return sharesSums || !sums(block); }

  /// Called by all lanes of the warp that sends.
  template <class ProblemShape>
  CUTLASS_DEVICE void send(const ProblemShape& problem, std::size_t block, std::size_t index, int staged,
                           TileSendRing& ring) const {
    const gpu::WarpTile<> warp;
    const auto& args = params_.exchange;
    const int rank = args.team.rank();
    const std::uint32_t columnTiles = columnTilesOf(problem);
    const bool isSum = sums(block);
    const auto forEachDestination = [&](const auto& f) {
      if (!isSum) {
        const int owner = contribution_.owner(block);
        f(args.window.at(owner,
                         args.scratch.tileOffset(contribution_.epoch(), block, rank, index, columnTiles, tileBytes)));
        return;
      }
      if constexpr (sharesSums) {
        const std::size_t offset =
            args.scratch.resultTileOffset(contribution_.epoch(), block, index, columnTiles, tileBytes);
        MSCCLPP_NO_UNROLL
        for (int i = 0; i < Ranks - 1; ++i) f(args.window.at(args.team.peer(i), offset));
      }
    };
    const std::byte* const from = args.window.at(rank, args.scratch.stagingOffset()) + std::size_t(staged) * tileBytes;
    ring.copy(from, tileBytes, forEachDestination, TileSendRing::pauseFor(gpu::Grid().blockCount()));
    if (isSum) {
      contribution_.publishResult(warp, block);
    } else {
      contribution_.publish(warp, block);
    }
  }

  /// Waits for the other ranks' contributions to a tile. Called by all warps that hold it. A failed wait fails the
  /// call; the tile is then meaningless.
  template <class ProblemShape>
  CUTLASS_DEVICE void awaitContributions(const ProblemShape& problem, std::size_t block, ExchangedTile& tile) const {
    const auto& args = params_.exchange;
    const std::uint32_t columnTiles = columnTilesOf(problem);
    auto wait = args.wait;
    contribution_.awaitOthers(gpu::WarpTile<>{}, wait, gpu::Grid().blockIndex(), block, columnTiles);
    tile.contributions = args.window.at(
        args.team.rank(), args.scratch.tileOffset(contribution_.epoch(), block, 0,
                                                  static_cast<std::size_t>(tile.column), columnTiles, tileBytes));
    tile.perRank = args.scratch.contributionOffset(0, 0, 1);
    tile.rank = args.team.rank();
  }

  const Params& params_;
  const RowContribution<Ranks, Scratch> contribution_;
  detail::TileHandover handover_;
  unsigned stored_ = 0;             ///< tiles that this group of warps has stored to be sent,
  unsigned sent_[mostGroups] = {};  ///< and those that the sending warp has sent for each group
};

}  // namespace mscclpp
