// A matrix multiplication whose epilogue reduces over the ranks: GEMM and all-reduce, GEMM and reduce-scatter.
#pragma once

#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/row_exchange.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"
#include "mscclpp/fusion/gemm/pair_op.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"
#include "mscclpp/fusion/gemm/tile.hpp"
#include "mscclpp/fusion/gemm/tile_order.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"

namespace mscclpp {

/// The choices of a GemmReduce.
struct GemmReduceConfig {
  /// ToOwner: a reduce-scatter. ToAll: an all-reduce in two hops. Redundant: in one hop, for few rows.
  RowDelivery delivery = RowDelivery::ToAll;
  GemmShape tile{};
  /// Of each block, which reduce rows while the others compute tiles, and one more announces them. Registers are
  /// allotted to four warps at a time: choose a number with which all of these are a multiple of four.
  int reducerWarps = 3;
  int groupBlocks = 8;  ///< blocks of rows whose tiles are computed together (GroupedTiles)
  int ranks = 0;        ///< > 0: fixed at compile time; 0: known at run time
  /// The packs of a row that a lane holds in registers; 0: 4, or, where rows are transformed as a whole, 32, which is
  /// enough for rows of 8192 elements.
  int packsPerLane = 0;
};

/// Every rank computes input * transpose of weight over its part of the depth; the products are rounded to T and summed
/// over the ranks in rank order, in fp32, and rounded once. Result: what becomes of a row (fusion/gemm/row_result.hpp).
/// All ranks get the same bits in every run, whatever the number of blocks. Operand: the type of input and
/// weights, as of a GemmTile (fusion/gemm/tile.hpp).
///
/// With RowDelivery::ToOwner, rank r gets rows [r * s, (r + 1) * s) with s = sliceRows(rows, ranks): the last slices
/// may be shorter or empty. Row i of its output is row r * s + i. Otherwise every rank gets all rows.
///
/// A warp-specialised kernel. The first warps of each block compute tiles in an order in which those that other ranks
/// reduce come first, and contribute them through shared memory to their owners; they never wait for other ranks. One
/// more warp announces their tiles: it waits until the stores of a tile have arrived, while the next one is computed.
/// The last warps reduce rows as soon as all tiles of a block of rows have arrived, transform and deliver them, while
/// tiles are still being computed. The scratch holds the contributions of a whole call twice
/// (collective/row_exchange.hpp). The sources of the idea are Flux (arXiv 2406.06858) and ParallelKittens (arXiv
/// 2511.13940).
///
/// run() is called by all threads of a grid, on every rank with the same sizes and config. Blocks have maxBlockThreads
/// threads, and all blocks are resident at once. args.count: rows; with none it returns at once. Sizes are any, the
/// depth may be 0; with a Result that needs whole rows, the width is at most packsPerLane packs for each lane of a
/// warp. Two calls on one scratch do not overlap in time, and a rank's call starts when all blocks of its previous one
/// have ended. Other arguments are refused: that is a record in args.wait's control block, and on a CPU InvalidCall. A
/// wait that fails leaves its record there too; the outputs are then meaningless.
template <class T, GemmReduceConfig config, class Result = StoreRows<T>, class Operand = T>
struct GemmReduce {
  static constexpr RowDelivery delivery = config.delivery;
  using Scratch = RowScratch<T, delivery>;
  using Args = CollectiveArgs<config.ranks, Scratch>;
  static constexpr int maxBlockThreads = (config.tile.warps() + 1 + config.reducerWarps) * 32;
  static constexpr int packsPerLane = config.packsPerLane > 0 ? config.packsPerLane : Result::wholeRows ? 32 : 4;

  /// Rows of the slice of a rank, but for the last ones.
  static MSCCLPP_HOST_DEVICE std::size_t sliceRows(std::size_t rows, int ranks) {
    return ceilDivide(rows, static_cast<std::size_t>(ranks));
  }
  /// The scratch for calls of up to `rows` rows of `width` columns, those of the result; every call has this width.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t rows, std::size_t width, int ranks) {
    const std::size_t columns = partColumns(width);
    const std::size_t parts = partsOf(width);
    return {exchangeRows(rows, ranks) * parts, columns, Result::resultBytes(columns),
            config.tile.rows * static_cast<int>(parts), ranks};
  }
  /// Whether a launch of this shape can run with these arguments.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && shape.threads == maxBlockThreads &&
           args.scratch.ranks == args.team.size() && args.count <= maxRows &&
           exchangeRows(args.count, args.team.size()) * partsOf(args.scratch) <= args.scratch.rows;
  }
  /// Shared memory of a block, in bytes.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args&, LaunchShape) {
    return config.tile.sharedBytes(sizeof(Operand), sizeof(T));
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class PairOp>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const GemmOperands<Operand, PairOp>& operands,
                                 const Result& result) {
    static_assert(SharedMemoryGrid<GridType>, "grid must have shared memory: gpu::Grid() or emulation::Grid");
    if (args.count == 0) return true;
    const std::size_t width = operands.width();
    const Rows rows{args.count, args.team.size(), args.team.rank(), partsOf(args.scratch), args.scratch.columns};
    if (!accepts(args, {grid.blockCount(), grid.block().size()}) || !operands.fits(args.count) || width == 0 ||
        partColumns(width) != args.scratch.columns || partsOf(width) != partsOf(args.scratch) ||
        !result.accepts(rows.outputRows(), width)) {
      return detail::refuseArguments(grid, args);
    }
    if constexpr (checked) {
      if (!compareCalls<GemmReduce, CallGrids::Any>(grid, args)) return false;
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, isScatter ? TraceId::ReduceScatter : TraceId::AllReduce,
                         args.count * width * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    const std::size_t tiles = ceilDivide(operands.weight.rows, static_cast<std::size_t>(config.tile.columns));
    // Each kind of warps has code of its own, with constant barriers, and few registers in common.
    const auto producers = grid.warps(0, config.tile.warps() + 1, BarrierIds{1});  // the last one announces
    if (producers.isMember()) {
      const auto exchange = makeRowExchange(producers, args, rows.exchangeCount(), wait, trace, Sum{});
      const GroupedTiles order{exchange.blocks(), tiles, static_cast<std::size_t>(config.groupBlocks)};
      if (exchange.hasStopped()) {
        // Nothing is contributed.
      } else if (producers.isControlWarp()) {
        announce(producers, exchange, order);
      } else {
        const auto workers = grid.warps(0, config.tile.warps(), BarrierIds{1});
        contribute(workers, producers, grid.sharedMemory(), exchange, rows, operands, order);
      }
      grid.block().sync();  // the epoch, which the reducers advance, has been read
      return true;
    }
    const auto reducers = grid.warps(config.tile.warps() + 1, config.reducerWarps, BarrierIds{1 + BarrierIds::count});
    auto exchange = makeRowExchange(reducers, args, rows.exchangeCount(), wait, trace, Sum{});
    const auto transform = [&](const auto& warp, std::size_t row, auto& packs, const auto& output) {
      if (rows.isPresent(row)) result.transform(warp, rows.part(row), packs, output);
    };
    const auto sink = [&](std::size_t row, std::size_t byte, const Word128& word) {
      if (rows.isPresent(row)) result.store(rows.part(row), byte, word);
    };
    const bool succeeded = exchange.template reduce<packsPerLane>(static_cast<std::uint32_t>(tiles), transform, sink) &&
                           exchange.collect(sink);
    grid.block().sync();
    return exchange.finish() && succeeded;
  }

 private:
  static_assert(config.reducerWarps > 0 && config.groupBlocks > 0);
  static constexpr std::size_t tileRows = config.tile.rows;
  static constexpr bool isScatter = delivery == RowDelivery::ToOwner;

  // Where a part of a row is enough, a row of the exchange is a part, so that many warps share a row.
  static constexpr std::size_t maxPart = static_cast<std::size_t>(packsPerLane) * packSize<T> * 32;
  static MSCCLPP_HOST_DEVICE std::size_t partsOf(std::size_t width) {
    return Result::wholeRows || width == 0 ? 1 : ceilDivide(width, maxPart);
  }
  static MSCCLPP_HOST_DEVICE std::size_t partsOf(const Scratch& scratch) {
    return static_cast<std::size_t>(scratch.rowsPerBlock / config.tile.rows);
  }
  static MSCCLPP_HOST_DEVICE std::size_t partColumns(std::size_t width) {
    return roundUp(ceilDivide(width, partsOf(width)), packSize<T>);
  }
  /// Rows, with those that complete the tiles of a slice.
  static MSCCLPP_HOST_DEVICE std::size_t exchangeRows(std::size_t rows, int ranks) {
    return isScatter ? roundUp(sliceRows(rows, ranks), tileRows) * static_cast<std::size_t>(ranks) : rows;
  }
  static constexpr std::size_t maxRows = std::size_t{1} << 24;  ///< so that 32 bits count parts

  /// The rows of the product, the parts of rows that are those of the exchange, and the rows of the output.
  struct Rows {
    std::size_t count;
    int ranks;
    int rank;
    std::size_t parts;
    std::size_t columns;  ///< of a part

    MSCCLPP_INLINE std::size_t slice() const { return sliceRows(count, ranks); }
    MSCCLPP_INLINE std::size_t exchangeCount() const { return exchangeRows(count, ranks) * parts; }
    MSCCLPP_INLINE std::size_t outputRows() const {
      if (!isScatter) return count;
      const std::size_t begin = slice() * static_cast<std::size_t>(rank);
      return begin >= count ? 0 : count - begin < slice() ? count - begin : slice();
    }
    /// The rows of the product in a block of the exchange, whose owners take turns.
    MSCCLPP_INLINE Range inBlock(std::size_t block) const {
      std::size_t begin = block * tileRows;
      std::size_t end = count;
      if (isScatter) {
        const auto owners = static_cast<std::size_t>(ranks);
        const std::size_t first = block % owners * slice();
        begin = first + block / owners * tileRows;
        end = first + slice() < count ? first + slice() : count;
      }
      if (begin > end) begin = end;
      return {begin, end - begin < tileRows ? end : begin + tileRows};
    }
    /// Where a column of a row is in a block of the exchange: the parts of a row follow each other.
    MSCCLPP_INLINE std::size_t byteInBlock(std::size_t row, std::size_t column) const {
      return (row * parts * columns + column) * sizeof(T);
    }
    /// Whether a row of the exchange, one that this rank reduces or receives, is a row of its output.
    MSCCLPP_INLINE bool isPresent(std::size_t row) const { return part(row).row < outputRows(); }
    MSCCLPP_INLINE RowPart part(std::size_t row) const {
      // Divisions of 32 bits: those of 64 are slow on a GPU.
      constexpr auto perBlock = static_cast<std::uint32_t>(tileRows);
      const auto index = static_cast<std::uint32_t>(row);
      const auto perRow = static_cast<std::uint32_t>(parts);
      const std::uint32_t whole = index / perRow;
      const std::size_t column = index % perRow * columns;
      if (!isScatter) return {whole, column};
      return {whole / perBlock / static_cast<std::uint32_t>(ranks) * perBlock + whole % perBlock, column};
    }
  };

  // Barriers of the producers, by which a tile passes from those that compute it to the one that announces it.
  static constexpr int isReady = 0;
  static constexpr int isStored = 1;

  /// By the control warp of the producers, for the tiles that their workers compute. An announcement is a release of
  /// the whole block's stores, which takes as long as the link: the workers do not wait for it.
  template <class Producers, class Exchange>
  static MSCCLPP_INLINE void announce(const Producers& producers, const Exchange& exchange, const GroupedTiles& order) {
    for (auto i = static_cast<std::size_t>(producers.blockIndex()); i < order.count();
         i += static_cast<std::size_t>(producers.blockCount())) {
      producers.namedBarrierArrive(isReady);
      producers.namedBarrierWait(isStored);
      exchange.publish(producers.warp(), exchange.blockInOrder(order(i).block));
    }
  }

  /// By the workers of the producers.
  template <class Workers, class Producers, class Exchange, class PairOp>
  static MSCCLPP_INLINE void contribute(const Workers& grid, const Producers& producers, std::byte* shared,
                                        const Exchange& exchange, const Rows& rows,
                                        const GemmOperands<Operand, PairOp>& operands, const GroupedTiles& order) {
    const std::size_t padded = roundUp(operands.width(), packSize<T>);
    GemmTile<T, config.tile, Workers, Operand> tile(grid, shared);
    for (auto i = static_cast<std::size_t>(grid.blockIndex()); i < order.count();
         i += static_cast<std::size_t>(grid.blockCount())) {
      const TilePlace at = order(i);
      const std::size_t block = exchange.blockInOrder(at.block);
      const Range present = rows.inBlock(block);
      const std::size_t column = at.part * static_cast<std::size_t>(config.tile.columns);
      Matrix<const Operand> input = operands.input;
      input.rows = present.end;
      if (present.size() > 0) {
        const auto slots = exchange.slots(block);
        tile.multiply(input, present.begin, operands.weight, column);
        tile.forEachPack(present.begin, column, operands.weight.rows, operands.op,
                         [&](std::size_t r, std::size_t c, const Pack<T>& pack) {
                           const std::size_t to = column / 2 * PairOp::outputs + c;
                           if (r >= present.size() || to >= padded) return;
                           slots.store(rows.byteInBlock(r, to), toWord<T>(pack));
                         });
      }
      producers.namedBarrierWait(isReady);  // the tile before has been announced, long ago
      producers.namedBarrierArrive(isStored);
    }
  }
};

}  // namespace mscclpp
