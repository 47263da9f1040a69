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
#include "mscclpp/fusion/cutlass/send_queue.cuh"
#include "mscclpp/fusion/cutlass/tile_groups.cuh"
#include "mscclpp/fusion/cutlass/tile_queue.cuh"
#include "mscclpp/fusion/cutlass/tile_scratch.hpp"
#include "mscclpp/fusion/cutlass/tile_sender.cuh"
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
///   wait for the link.
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
  using OutgoingTile = detail::OutgoingTile;
  using SendStep = detail::SendStep;
  using Tiles = ExchangeTiles<Ranks, Scratch, cute::size<0>(CtaTileMNK{}), cute::size<1>(CtaTileMNK{})>;
  static_assert(Ranks > 1, "fix the number of ranks");
  static_assert(delivery != RowDelivery::Redundant, "in one hop every rank needs all contributions");
  static_assert(cute::is_void_v<typename Stock::ElementC>,
                "build the epilogue with ElementC = void: each rank would add C; add it after the reduction instead");
  static_assert(sizeof(typename Stock::ElementD) == sizeof(T),
                "the output of the epilogue must have the element type of the scratch");
  static_assert(TileSender::warps == Scratch::parts && Tiles::tileColumns >= Scratch::leastTileColumns);
  static constexpr int tileRowBytes = Tiles::tileColumns * static_cast<int>(sizeof(T));
  static constexpr int tileBytes = Tiles::tileRows * tileRowBytes;

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
        contribution_(params.exchange, shared.thread.queue.epoch(), shared.thread.queue.hasStopped()) {}

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
    const std::size_t block = blockOf(at);
    const bool isSum = takesPart(problem, at) && sums(block);
    int contributed = 0;
    if (isSum) {
      contributed = contributedTile(problem, block, static_cast<int>(cute::get<1>(at)));
      awaitTile(contribution_, params_.exchange, gpu::Grid().blockIndex(), block,
                static_cast<std::size_t>(cute::get<1>(at)));
      arch::bulkFenceAll();  // TMA reads what stores of another rank wrote, ordinary ones or bulk copies
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
    const std::size_t block = blockOf(at);
    const bool takesPart = this->takesPart(problem, at), isSum = takesPart && sums(block);
    ExchangedTile tile{static_cast<int>(cute::get<0>(at)), static_cast<int>(cute::get<1>(at)), isSum};
    int row = params_.stagedTiles, column = 0;  // beyond the memory: what is not stored
    if (isSum) {
      locateContributions(problem, block, tile);
      const auto slot = Tiles::blocksOf(params_.exchange.count).slotOf(static_cast<std::uint32_t>(tile.row));
      row = sharesSums ? tile.row : static_cast<int>(slot);
      column = tile.column;
    } else if (takesPart) {
      row = stagedTile(problem, block, tile.column);
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
    if (takesPart && isSent(block) && thread < gpu::WarpTile<>::width) {
      if (params_.sendsOwnTiles) {
        shared.thread.queue.template give<TiledMma>(++given_);
      } else {
        giveToSendingBlock(block, at);
      }
    }
    return cute::make_tuple(endLoad, endStore);
  }
  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState>
  CUTLASS_DEVICE auto store_tail(LoadPipeline /*loadPipeline*/, LoadState loadState, StorePipeline /*storePipeline*/,
                                 StoreState storeState) {
    return cute::make_tuple(loadState, storeState);
  }

  /// Called by TileSender::warps warps that do nothing else, with their numbers, after the kernel has set up its
  /// barriers: sends the tiles of this block, which a scheduler of the kernel lists.
  template <class TiledMma, class TileScheduler, class ProblemShape>
  CUTLASS_DEVICE void sendTiles(TileScheduler scheduler, const ProblemShape& problem, const TensorStorage& shared,
                                int sender) const {
    using Groups = detail::TileGroups<TiledMma>;
    unsigned taken[Groups::count] = {};
    unsigned tiles = 0;
    auto work = scheduler.get_current_work();
    MSCCLPP_NO_UNROLL
    while (work.is_valid()) {
      const int group = Groups::ofTile(tiles++);
      const auto at = cute::make_coord(work.M_idx, work.N_idx, 0, 0);
      scheduler.advance_to_next_work();
      work = scheduler.get_current_work();
      if (!takesPart(problem, at)) continue;
      const std::size_t block = blockOf(at);
      if (!isSent(block)) continue;
      const auto& queue = shared.thread.queue;
      queue.await(group, ++taken[group]);
      // Late is who has more to send, and while the last tile is sent nothing is multiplied.
      const bool isLast = !work.is_valid();
      const auto isEarly = [&] {
        bool isLate = isLast;
        MSCCLPP_UNROLL
        for (int g = 0; g < Groups::count; ++g) isLate |= queue.has(g, taken[g] + 1);
        return !isLate;
      };
      // Once, and not for each piece: it takes divisions.
      const OutgoingTile tile = locate(problem, block, at);
      const auto forEachDestination = [&](const auto& f) {
        this->forEachDestination(tile, [&](std::byte* window) { f(window + tile.offset); });
      };
      TileSender::copy<Tiles::tileRows, tileRowBytes>(sender, tile.source, forEachDestination, isEarly);
      contribution_.publishPiece(gpu::WarpTile<>{}, block,
                                 tile.flag + static_cast<std::size_t>(sender) * sizeof(std::uint64_t));
    }
  }

  /// In the shared memory of a sending block.
  template <int chunks>
  using SendQueue = detail::SendQueue<Tiles::tileRows, tileRowBytes, chunks>;
  /// Of a sending block.
  CUTLASS_DEVICE SummingEpilogue(const Params& params, TensorStorage& shared,
                                 const RowContribution<Ranks, Scratch>& contribution)
      : Base(params.output, shared), params_(params), contribution_(contribution) {}
  /// Called by all lanes of a warp of a sending block, with its step among those of the queue: sends the tiles that
  /// other blocks compute, of the clusters of tiles first, first + stride, ...
  template <class TileScheduler, class ProblemShape, class Queue>
  CUTLASS_DEVICE void sendTilesOfOthers(const TileScheduler& scheduler, const ProblemShape& problem, Queue& queue,
                                        std::uint32_t first, std::uint32_t stride, SendStep step) const {
    switch (step) {
      case SendStep::Find:
        return findTiles(scheduler, problem, queue, first, stride);
      case SendStep::Copy:
        return queue.copyAll([&](const auto& tile, const auto& f) { forEachDestination(tile, f); });
      case SendStep::Announce:
        return queue.announceAll([&](const OutgoingTile& tile) {
          for (std::size_t part = 0; part < Scratch::parts; ++part) {
            contribution_.template publishPiece<arch::Order::Relaxed>(ThisThread{}, tile.block,
                                                                      tile.flag + part * sizeof(std::uint64_t));
          }
        });
    }
  }

  /// After the last tile, by the warps of the consumers: stores the results of other ranks. Returns whether all waits
  /// of this warp succeeded.
  template <class Exchange, class ProblemShape>
  CUTLASS_DEVICE static bool collect(const Params& params, const gpu::WarpGrid& grid, Exchange& exchange,
                                     const ProblemShape& problem) {
    if constexpr (!sharesSums) {
      return true;
    } else {
      // A warp stores a piece of a tile at a time, in loads that are in flight together.
      constexpr std::uint32_t width = gpu::WarpTile<>::width, loads = 8;
      constexpr std::uint32_t loadBytes = width * sizeof(Word128), pieces = tileBytes / (loads * loadBytes);
      static_assert(tileBytes % (loads * loadBytes) == 0);
      const auto& args = params.exchange;
      const auto columnTiles = columnTilesOf(problem);
      const std::uint32_t all = Tiles::blocksOf(args.count).tiles * columnTiles * pieces;
      const auto lane = static_cast<std::uint32_t>(gpu::WarpTile<>().rank());
      for (auto i = static_cast<std::uint32_t>(grid.warpIndex() * grid.blockCount() + grid.blockIndex()); i < all;
           i += static_cast<std::uint32_t>(grid.warpCount() * grid.blockCount())) {
        const std::uint32_t tile = i / pieces, block = tile / columnTiles, index = tile % columnTiles;
        if (exchange.owner(block) == args.team.rank()) continue;
        if (!awaitTile(exchange, args, grid.blockIndex(), block, index)) return false;
        const std::byte* const from = args.window.at(
            args.team.rank(), args.scratch.resultTileOffset(exchange.epoch(), block, index, columnTiles, tileBytes));
        const std::uint32_t first = i % pieces * loads * loadBytes + lane * static_cast<std::uint32_t>(sizeof(Word128));
        Word128 words[loads];
        MSCCLPP_UNROLL
        for (std::uint32_t j = 0; j < loads; ++j) words[j] = arch::loadWide(from + first + j * loadBytes);
        MSCCLPP_UNROLL
        for (std::uint32_t j = 0; j < loads; ++j) {
          const std::uint32_t at = first + j * loadBytes;
          const std::size_t row = block * std::size_t{Tiles::tileRows} + at / tileRowBytes;
          if (row >= args.count) continue;
          params.result.store({row, index * std::size_t{Tiles::tileColumns}}, at % tileRowBytes, words[j]);
        }
      }
      return true;
    }
  }

 private:
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
  /// Of tiles one after the other.
  template <class Shape>
  static CUTLASS_HOST_DEVICE auto tilesShape(const Shape& shape, int tiles) {
    return storedShape(shape, tiles * Tiles::tileRows, int{Tiles::tileColumns});
  }
  /// The tiles that contributions have room for: two calls, those of each rank.
  static CUTLASS_HOST_DEVICE int contributedTiles(const Params& params) { return 2 * Ranks * params.tilesPerSlot; }
  /// The place of a tile that waits to be sent.
  template <class ProblemShape>
  CUTLASS_DEVICE int stagedTile(const ProblemShape& problem, std::size_t block, int column) const {
    return static_cast<int>(block) * static_cast<int>(columnTilesOf(problem)) + column;
  }
  template <class TileCoordinates>
  CUTLASS_DEVICE std::size_t blockOf(const TileCoordinates& at) const {
    return Tiles::blocksOf(params_.exchange.count).blockOf(static_cast<std::uint32_t>(cute::get<0>(at)));
  }
  /// The tile of the contributions that the first other rank makes to a tile of own rows.
  template <class ProblemShape>
  CUTLASS_DEVICE int contributedTile(const ProblemShape& problem, std::size_t block, int column) const {
    const auto& args = params_.exchange;
    const auto slot = static_cast<int>(args.scratch.slotSet(contribution_.epoch(), args.team.rank() == 0 ? 1 : 0));
    const auto index = static_cast<int>(Scratch::Owners::index(block, Ranks));
    return slot * params_.tilesPerSlot + index * static_cast<int>(columnTilesOf(problem)) + column;
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

  /// The word in this rank's window that says that a tile can be sent: at the place of the flag that announces the
  /// tile to other ranks, which is not used here. It holds the number of the last call.
  CUTLASS_DEVICE std::uint64_t* storedFlag(std::size_t offset) const {
    const auto& args = params_.exchange;
    return reinterpret_cast<std::uint64_t*>(args.window.at(args.team.rank(), offset));
  }
  /// Called by all lanes of the warp that has issued the bulk stores of a tile, which it waits for.
  template <class TileCoordinates>
  CUTLASS_DEVICE void giveToSendingBlock(std::size_t block, const TileCoordinates& at) const {
    arch::bulkWait<0>();
    const gpu::WarpTile<> warp;
    warp.sync();
    if (warp.rank() != 0) return;
    const auto& args = params_.exchange;
    const auto index = static_cast<std::size_t>(cute::get<1>(at));
    arch::store<arch::Order::Release, arch::Scope::Device>(
        storedFlag(args.scratch.flagOffset(block, args.team.rank(), index)), contribution_.epoch());
  }
  /// Called by all lanes of a warp, which look at a tile each.
  template <class TileScheduler, class ProblemShape, class Queue>
  CUTLASS_DEVICE void findTiles(const TileScheduler& scheduler, const ProblemShape& problem, Queue& queue,
                                std::uint32_t first, std::uint32_t stride) const {
    const gpu::WarpTile<> warp;
    constexpr std::uint32_t width = gpu::WarpTile<>::width;
    std::uint32_t found = 0;
    bool isEnd = false;
    for (std::uint32_t i = first + static_cast<std::uint32_t>(warp.rank()) * stride; !isEnd; i += width * stride) {
      const auto work = scheduler.tileOfCluster(i);
      isEnd = warp.any(!work.is_valid());
      const auto at = cute::make_coord(work.M_idx, work.N_idx, 0, 0);
      OutgoingTile tile{};
      if (work.is_valid() && takesPart(problem, at)) {
        const std::size_t block = blockOf(at);
        if (isSent(block)) tile = locate(problem, block, at);
      }
      found = addTiles(queue, found, tile);
    }
    queue.close(found);
  }
  /// Adds the tiles of a warp's lanes, those that have one, as they are stored. Returns how many have been added.
  template <class Queue>
  CUTLASS_DEVICE std::uint32_t addTiles(Queue& queue, std::uint32_t found, const OutgoingTile& tile) const {
    const gpu::WarpTile<> warp;
    const bool isTile = tile.source.first != nullptr;
    const std::uint32_t lanes = warp.ballot(isTile);
    const std::uint32_t end = queue.add(found, lanes, tile);
    while (found < end) {
      const bool isMissing =
          isTile &&
          static_cast<std::int64_t>(arch::load<arch::Order::Acquire, arch::Scope::Device>(storedFlag(tile.flag)) -
                                    contribution_.epoch()) < 0;
      // The tiles before the first one that is missing.
      const std::uint32_t missing = warp.ballot(isMissing);
      const std::uint32_t before = missing == 0 ? ~0u : (missing & (0u - missing)) - 1;
      const std::uint32_t ready = end - static_cast<std::uint32_t>(arch::countBits(lanes & ~before));
      if (ready == found) {
        arch::sleepFor(Queue::pauseNanoseconds);
      } else {
        queue.release(found = ready);
      }
    }
    return end;
  }

  /// A tile that is sent, and where to.
  template <class ProblemShape, class TileCoordinates>
  CUTLASS_DEVICE OutgoingTile locate(const ProblemShape& problem, std::size_t block, const TileCoordinates& at) const {
    const auto& args = params_.exchange;
    const int rank = args.team.rank();
    const std::uint32_t columnTiles = columnTilesOf(problem);
    const int tileRow = static_cast<int>(cute::get<0>(at)), tileColumn = static_cast<int>(cute::get<1>(at));
    const auto index = static_cast<std::size_t>(tileColumn);
    const bool isSum = sums(block);
    TileSource source{args.window.at(rank, args.scratch.stagingOffset()) +
                          std::size_t(stagedTile(problem, block, tileColumn)) * tileBytes,
                      tileRowBytes, Tiles::tileRows, tileRowBytes};
    if constexpr (sharesSums) {
      if (isSum) {
        const auto& output = params_.result.output;
        const int row = tileRow * Tiles::tileRows, column = tileColumn * Tiles::tileColumns;
        const int rowBytes = (columnsOf(problem) - column) * static_cast<int>(sizeof(T));
        source = {reinterpret_cast<const std::byte*>(output.data + std::size_t(row) * output.pitch + column),
                  output.pitch * sizeof(T), static_cast<int>(args.count) - row,
                  rowBytes < tileRowBytes ? rowBytes : tileRowBytes};
      }
    }
    return {source,
            isSum ? args.scratch.resultTileOffset(contribution_.epoch(), block, index, columnTiles, tileBytes)
                  : args.scratch.tileOffset(contribution_.epoch(), block, rank, index, columnTiles, tileBytes),
            args.scratch.flagOffset(block, rank, index), static_cast<std::uint32_t>(block)};
  }
  /// Calls f(std::byte*) with the window of each rank that gets the tile.
  template <class F>
  CUTLASS_DEVICE void forEachDestination(const OutgoingTile& tile, const F& f) const {
    const auto& args = params_.exchange;
    if constexpr (Ranks == 2) {
      f(args.window.at(args.team.peer(0), 0));
    } else if (!sums(tile.block)) {
      f(args.window.at(contribution_.owner(tile.block), 0));
    } else {
      MSCCLPP_NO_UNROLL
      for (int i = 0; i < Ranks - 1; ++i) f(args.window.at(args.team.peer(i), 0));
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
      awaitTile(contribution_, args, gpu::Grid().blockIndex(), block, index);
      tile.contributions = args.window.at(tile.rank, args.scratch.tileOffset(contribution_.epoch(), block, 0, index,
                                                                             columnTilesOf(problem), tileBytes));
      tile.perRank = args.scratch.contributionOffset(0, 0, 1);
    }
  }

  const Params& params_;
  const RowContribution<Ranks, Scratch> contribution_;
  unsigned given_ = 0;  ///< tiles that this group of warps has stored to be sent
};

}  // namespace mscclpp
