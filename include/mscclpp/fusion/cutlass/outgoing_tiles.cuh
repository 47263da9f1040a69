// The tiles of a row exchange that a rank sends: which ones, where they wait and where they go, and the warps that send
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cute/atom/copy_traits_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <utility>

#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/arch/warp.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/cutlass/send_queue.cuh"
#include "mscclpp/fusion/cutlass/tile_groups.cuh"
#include "mscclpp/fusion/cutlass/tile_queue.cuh"
#include "mscclpp/fusion/cutlass/tile_sender.cuh"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp::detail {

/// The tiles of one call of a SummingEpilogue on this rank. Those of rows that another rank reduces wait in the scratch
/// and go to that rank; those of rows that this rank reduces are sums, which with RowDelivery::ToAll go from the output
/// to all other ranks. They are sent by warps of the block that computes them (sendOwn()), or by blocks that do nothing
/// else (sendOfOthers()).
template <int Ranks, class Scratch, int tileRows, int tileColumns>
class OutgoingTiles {
 public:
  using T = typename Scratch::Element;
  using Args = CollectiveArgs<Ranks, Scratch>;
  using Contribution = RowContribution<Ranks, Scratch>;
  using Tiles = ExchangeTiles<Ranks, Scratch, tileRows, tileColumns>;
  static constexpr bool sharesSums = Scratch::delivery == RowDelivery::ToAll;
  static constexpr int tileRowBytes = tileColumns * static_cast<int>(sizeof(T));
  static constexpr int tileBytes = tileRows * tileRowBytes;
  using Chunks = TileChunks<tileRows, tileRowBytes>;
  static_assert(TileSender::warps == Scratch::parts);

  /// In the shared memory of a block that sends tiles of others.
  template <int chunks>
  using SendQueue = detail::SendQueue<Chunks, chunks>;

  /// TMA loads of chunks of sums from the output, for sending blocks: the rows lie apart, and bulk copies of single
  /// rows reach half of the speed. rows, columns: of the output; a descriptor must have one row.
  static auto makeSumLoads(const StoreRows<T>& result, std::size_t rows, int columns) {
    if constexpr (sharesSums) {
      using Word = std::uint16_t;  // TMA does not know T
      static_assert(sizeof(T) == sizeof(Word));
      const auto layout =
          cute::make_layout(cute::make_shape(rows > 0 ? static_cast<int>(rows) : 1, columns),
                            cute::make_stride(static_cast<std::int64_t>(result.output.pitch), cute::_1{}));
      return cute::make_tma_copy(
          cute::SM90_TMA_LOAD{},
          cute::make_tensor(cute::make_gmem_ptr(reinterpret_cast<const Word*>(result.output.data)), layout),
          cute::make_layout(cute::make_shape(cute::Int<Chunks::rows>{}, cute::Int<tileColumns>{}),
                            cute::LayoutRight{}));
    } else {
      return nullptr;
    }
  }
  using SumLoads = decltype(makeSumLoads(std::declval<const StoreRows<T>&>(), 0, 0));
  /// Whether one load is a whole chunk, the bytes that a barrier waits for.
  static constexpr bool loadsChunks() {
    if constexpr (sharesSums) return SumLoads::NumValSrc == Chunks::rows * tileColumns;
    return true;
  }
  static_assert(loadsChunks());

  CUTLASS_DEVICE OutgoingTiles(const Args& args, const StoreRows<T>& result, const Contribution& contribution)
      : args_(args), result_(result), contribution_(contribution) {}

  CUTLASS_DEVICE const Contribution& contribution() const { return contribution_; }
  /// Whether the tile is part of the problem, as blocks of a cluster beyond its edges are not, in a call that does
  /// something.
  CUTLASS_DEVICE bool takesPart(TileCoordinate at, int columns) const {
    return Tiles::contain(at, args_.count, columns) && !contribution_.hasStopped();
  }
  /// The block of rows of the exchange in which a tile is.
  CUTLASS_DEVICE std::size_t blockOf(TileCoordinate at) const {
    return Tiles::blocksOf(args_.count).blockOf(static_cast<std::uint32_t>(at.row));
  }
  /// Whether tiles of a block of rows are summed up here, and whether they are sent to other ranks.
  CUTLASS_DEVICE bool sums(std::size_t block) const { return contribution_.owner(block) == args_.team.rank(); }
  CUTLASS_DEVICE bool areSent(std::size_t block) const { return sharesSums || !sums(block); }
  /// The place of a tile among those that wait in the scratch.
  static CUTLASS_DEVICE int stagedTile(std::size_t block, int column, int columns) {
    return static_cast<int>(block) * static_cast<int>(Tiles::columnTilesOf(columns)) + column;
  }

  /// Hands a tile over to the sending blocks. Called by all lanes of the warp that has issued the bulk stores of the
  /// tile, for which it waits.
  CUTLASS_DEVICE void give(std::size_t block, TileCoordinate at) const {
    arch::bulkWait<0>();
    const gpu::WarpTile<> warp;
    warp.sync();
    if (warp.rank() != 0) return;
    arch::store<arch::Order::Release, arch::Scope::Device>(storedFlag(flagOf(block, at)), contribution_.epoch());
  }

  /// Called by TileSender::warps warps that do nothing else, with their numbers, after the kernel has set up its
  /// barriers: sends the tiles of this block, which a scheduler of the kernel lists, when `queue` has them.
  template <class TiledMma, class TileScheduler>
  CUTLASS_DEVICE void sendOwn(TileScheduler scheduler, int columns, const TileQueue& queue, int sender) const {
    using Groups = TileGroups<TiledMma>;
    unsigned taken[Groups::count] = {};
    unsigned tiles = 0;
    auto work = scheduler.get_current_work();
    MSCCLPP_NO_UNROLL
    while (work.is_valid()) {
      const int group = Groups::ofTile(tiles++);
      const TileCoordinate at{work.M_idx, work.N_idx};
      scheduler.advance_to_next_work();
      work = scheduler.get_current_work();
      if (!takesPart(at, columns)) continue;
      const std::size_t block = blockOf(at);
      if (!areSent(block)) continue;
      queue.await(group, ++taken[group]);
      // Late is who has more to send: always in an all-reduce by two groups of warps that compute tiles in turns, where
      // a new one comes in half of the time. And while the last tile is sent nothing is multiplied.
      const bool isAlwaysLate = (sharesSums && Groups::count > 1) || !work.is_valid();
      const auto isEarly = [&] {
        bool isLate = isAlwaysLate;
        MSCCLPP_UNROLL
        for (int g = 0; g < Groups::count; ++g) isLate |= queue.has(g, taken[g] + 1);
        return !isLate;
      };
      // Once, and not for each piece: it takes divisions.
      const OutgoingTile tile = locate(block, at, columns);
      const auto forEachDestination = [&](const auto& f) {
        this->forEachDestination(tile, [&](std::byte* window) { f(window + tile.offset); });
      };
      TileSender::copy<tileRows, tileRowBytes>(sender, sourceOf(tile, columns), forEachDestination, isEarly);
      contribution_.publishPiece(gpu::WarpTile<>{}, block,
                                 tile.flag + static_cast<std::size_t>(sender) * sizeof(std::uint64_t));
    }
  }

  /// Called by all lanes of a warp of a sending block, with its step among those of the queue: sends the tiles that
  /// other blocks compute, of the clusters of tiles first, first + stride, ...
  template <class TileScheduler, class Queue>
  CUTLASS_DEVICE void sendOfOthers(const TileScheduler& scheduler, int columns, const SumLoads& sumLoads, Queue& queue,
                                   std::uint32_t first, std::uint32_t stride, SendStep step) const {
    switch (step) {
      case SendStep::Find:
        return find(scheduler, columns, queue, first, stride);
      case SendStep::Copy:
        return queue.copyAll([&](const OutgoingTile& tile, int chunk, std::byte* to,
                                 BulkBarrier& barrier) { loadChunk(tile, columns, sumLoads, chunk, to, barrier); },
                             [&](const OutgoingTile& tile, const auto& f) { forEachDestination(tile, f); });
      case SendStep::Announce:
        return queue.announceAll([&](const OutgoingTile& tile) {
          for (std::size_t part = 0; part < Scratch::parts; ++part) {
            contribution_.template publishPiece<arch::Order::Relaxed>(ThisThread{}, tile.block,
                                                                      tile.flag + part * sizeof(std::uint64_t));
          }
        });
    }
  }

 private:
  /// The offset in a window of the words that announce a tile.
  CUTLASS_DEVICE std::size_t flagOf(std::size_t block, TileCoordinate at) const {
    return args_.scratch.flagOffset(block, args_.team.rank(), static_cast<std::size_t>(at.column));
  }
  /// The word in this rank's window that says that a tile can be sent: at the place of the flag that announces the
  /// tile to other ranks, which is not used here. It holds the number of the last call.
  CUTLASS_DEVICE std::uint64_t* storedFlag(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(args_.team.rank(), offset));
  }

  CUTLASS_DEVICE OutgoingTile locate(std::size_t block, TileCoordinate at, int columns) const {
    const std::uint32_t columnTiles = Tiles::columnTilesOf(columns);
    const auto index = static_cast<std::size_t>(at.column);
    const auto& scratch = args_.scratch;
    const std::uint64_t epoch = contribution_.epoch();
    return {at, static_cast<std::uint32_t>(block),
            sums(block) ? scratch.resultTileOffset(epoch, block, index, columnTiles, tileBytes)
                        : scratch.tileOffset(epoch, block, args_.team.rank(), index, columnTiles, tileBytes),
            flagOf(block, at)};
  }
  CUTLASS_DEVICE const std::byte* staged(const OutgoingTile& tile, int columns) const {
    return args_.window.at(args_.team.rank(), args_.scratch.stagingOffset()) +
           std::size_t(stagedTile(tile.block, tile.at.column, columns)) * tileBytes;
  }
  CUTLASS_DEVICE TileSource sourceOf(const OutgoingTile& tile, int columns) const {
    if constexpr (sharesSums) {
      if (sums(tile.block)) {
        const auto& output = result_.output;
        const int row = tile.at.row * tileRows, column = tile.at.column * tileColumns;
        const int rowBytes = (columns - column) * static_cast<int>(sizeof(T));
        return {reinterpret_cast<const std::byte*>(output.data + std::size_t(row) * output.pitch + column),
                output.pitch * sizeof(T), static_cast<int>(args_.count) - row,
                rowBytes < tileRowBytes ? rowBytes : tileRowBytes};
      }
    }
    return {staged(tile, columns), tileRowBytes, tileRows, tileRowBytes};
  }
  /// Starts the loads of a chunk of a tile to shared memory. What is beyond the edges of the output is loaded as zeros.
  CUTLASS_DEVICE void loadChunk(const OutgoingTile& tile, int columns, const SumLoads& sumLoads, int chunk,
                                std::byte* to, BulkBarrier& barrier) const {
    if constexpr (sharesSums) {
      if (sums(tile.block)) {
        return cute::SM90_TMA_LOAD_2D::copy(sumLoads.get_tma_descriptor(), &barrier.word,
                                            static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL), to,
                                            tile.at.column * tileColumns,
                                            tile.at.row * tileRows + chunk * Chunks::rows);
      }
    }
    bulkLoad(to, staged(tile, columns) + chunk * Chunks::bytes, Chunks::bytes, barrier);
  }
  /// Calls f(std::byte*) with the window of each rank that gets the tile.
  template <class F>
  CUTLASS_DEVICE void forEachDestination(const OutgoingTile& tile, const F& f) const {
    if constexpr (Ranks == 2) {
      f(args_.window.at(args_.team.peer(0), 0));
    } else if (!sums(tile.block)) {
      f(args_.window.at(contribution_.owner(tile.block), 0));
    } else {
      MSCCLPP_NO_UNROLL
      for (int i = 0; i < Ranks - 1; ++i) f(args_.window.at(args_.team.peer(i), 0));
    }
  }

  /// Called by all lanes of a warp, which look at a tile each.
  template <class TileScheduler, class Queue>
  CUTLASS_DEVICE void find(const TileScheduler& scheduler, int columns, Queue& queue, std::uint32_t first,
                           std::uint32_t stride) const {
    const gpu::WarpTile<> warp;
    constexpr std::uint32_t width = gpu::WarpTile<>::width;
    std::uint32_t found = 0;
    bool isEnd = false;
    for (std::uint32_t i = first + static_cast<std::uint32_t>(warp.rank()) * stride; !isEnd; i += width * stride) {
      const auto work = scheduler.tileOfCluster(i, args_.team.rank());
      isEnd = warp.any(!work.is_valid());
      const TileCoordinate at{work.M_idx, work.N_idx};
      OutgoingTile tile;
      if (work.is_valid() && takesPart(at, columns)) {
        const std::size_t block = blockOf(at);
        if (areSent(block)) tile = locate(block, at, columns);
      }
      found = addWhenStored(queue, found, tile);
    }
    queue.close(found);
  }
  /// Adds the tiles of a warp's lanes, those that have one, as they are stored. Returns how many have been added.
  template <class Queue>
  CUTLASS_DEVICE std::uint32_t addWhenStored(Queue& queue, std::uint32_t found, const OutgoingTile& tile) const {
    const gpu::WarpTile<> warp;
    const std::uint32_t lanes = warp.ballot(tile.exists());
    const std::uint32_t end = queue.add(found, lanes, tile);
    while (found < end) {
      const bool isMissing =
          tile.exists() &&
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

  const Args& args_;
  const StoreRows<T>& result_;
  const Contribution contribution_;
};

}  // namespace mscclpp::detail
