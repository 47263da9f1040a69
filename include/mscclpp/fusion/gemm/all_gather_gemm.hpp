// A matrix multiplication of rows that are gathered from all ranks while it runs: all-gather and GEMM.
#pragma once

#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/row_gather.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"
#include "mscclpp/fusion/gemm/pair_op.hpp"
#include "mscclpp/fusion/gemm/tile.hpp"
#include "mscclpp/fusion/gemm/tile_order.hpp"
#include "mscclpp/fusion/gemm/tile_shape.hpp"

namespace mscclpp {

/// The choices of an AllGatherGemm.
struct AllGatherGemmConfig {
  GemmShape tile{};
  int senderWarps = 4;  ///< of each block, which send this rank's rows while the others compute tiles
  int rowsPerPart = 8;  ///< rows that a warp sends together
  int groupBlocks = 8;  ///< blocks of rows whose tiles are computed together (GroupedTiles)
  int ranks = 0;        ///< > 0: fixed at compile time; 0: known at run time
  /// Whether the pair operation, a ScalePairs, has the scales of this rank's rows alone, which are sent with the rows:
  /// otherwise it has those of all rows.
  bool gathersScales = false;
};

/// Every rank has rows [r * s, (r + 1) * s) of args.count rows of input, with s = sliceRows(rows, ranks); the last
/// slices may be shorter or empty. It gets, for all rows, the product with the transpose of its own weights, in
/// `output` (args.count rows). Operand: the type of input and weights, as of
/// a GemmTile (fusion/gemm/tile.hpp); T: of the product.
///
/// A warp-specialised kernel. The last warps of each block send this rank's rows to all peers, each rank to the one
/// behind it first. The first warps compute tiles, first those of this rank's own rows, which they read where they are,
/// then those of each block of rows as it arrives, in the order of its arrival. No other kernel or barrier is needed.
/// The sources of the idea are Flux (arXiv 2406.06858) and Triton-distributed (arXiv 2504.19442).
///
/// run() is called by all threads of a grid, on every rank with the same rows, depth and config; the width may differ.
/// Blocks have maxBlockThreads threads, and all blocks are resident at once. With no rows it returns at once. Two calls
/// on one scratch do not overlap in time, and a rank's call starts when all blocks of its previous one have ended.
/// Other arguments are refused: that is a record in args.wait's control block, and on a CPU InvalidCall. A wait that
/// fails leaves its record there too; the outputs are then meaningless. The same bits in every run.
template <class T, AllGatherGemmConfig config, class Operand = T>
struct AllGatherGemm {
  using Scratch = GatherScratch<Operand, config.gathersScales ? 1 : 0>;
  using Args = CollectiveArgs<config.ranks, Scratch>;
  static constexpr int maxBlockThreads = (config.tile.warps() + config.senderWarps) * 32;

  static MSCCLPP_HOST_DEVICE std::size_t sliceRows(std::size_t rows, int ranks) {
    return ceilDivide(rows, static_cast<std::size_t>(ranks));
  }
  /// The scratch for calls of up to `rows` rows of all ranks, of up to `depth` elements.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t rows, std::size_t depth, int ranks) {
    const std::size_t columns = roundUp(depth, packSize<Operand>);
    return {{sliceRows(rows, ranks), columns, config.tile.rows, config.rowsPerPart, columns, ranks}};
  }
  /// Whether a launch of this shape can run with these arguments.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && shape.threads == maxBlockThreads &&
           args.scratch.ranks == args.team.size() && args.scratch.accepts(sliceRows(args.count, args.team.size()));
  }
  /// Shared memory of a block, in bytes.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args&, LaunchShape) {
    return config.tile.sharedBytes(sizeof(Operand), sizeof(T));
  }

  /// Returns whether all waits of the calling thread succeeded. operands.input: this rank's rows.
  template <class GridType, class PairOp>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const GemmOperands<Operand, PairOp>& operands,
                                 const Matrix<T>& output) {
    static_assert(SharedMemoryGrid<GridType>, "grid must have shared memory: gpu::Grid() or emulation::Grid");
    static_assert(!config.gathersScales || canHaveScales<PairOp>, "gathersScales is for ScalePairs");
    if (args.count == 0) return true;
    const std::size_t ownRows =
        steppedPart(args.count, sliceRows(args.count, args.team.size()), static_cast<std::size_t>(args.team.rank()))
            .size();
    if (!accepts(args, {grid.blockCount(), grid.block().size()}) || !operands.fits(ownRows) ||
        operands.input.columns > args.scratch.columns || output.rows < args.count ||
        output.columns != operands.width()) {
      return detail::refuseArguments(grid, args);
    }
    if constexpr (checked) {
      if (!compareCalls<AllGatherGemm, CallGrids::Any>(grid, args)) return false;
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, TraceId::AllGather, args.count * operands.input.columns * sizeof(Operand));
    auto wait = tracedWait(args.wait, trace);
    // Each kind of warps has code of its own, with constant barriers, and few registers in common.
    const auto consumers = grid.warps(0, config.tile.warps(), BarrierIds{1});
    if (consumers.isMember()) {
      auto gather = makeRowGather(consumers, args, wait, trace);
      if (!gather.hasStopped()) multiply(consumers, grid.sharedMemory(), args, gather, operands, output);
      grid.block().sync();  // the epoch has been read
      return gather.finish();
    }
    const auto senders = grid.warps(config.tile.warps(), config.senderWarps, BarrierIds{1 + BarrierIds::count});
    auto gather = makeRowGather(senders, args, wait, trace);
    SentRows rows{operands.input.data, operands.input.pitch * sizeof(Operand),
                  operands.input.columns * sizeof(Operand)};
    if constexpr (config.gathersScales) rows.scales = operands.op.inputScales;
    gather.send(rows);
    const bool succeeded = gather.leave();
    grid.block().sync();
    return succeeded;
  }

 private:
  static_assert(config.senderWarps > 0 && config.groupBlocks > 0);
  template <class PairOp>
  static constexpr bool canHaveScales = requires(PairOp op) {
    op.ofRows(op.inputScales, Range{});
  };

  template <class Consumers, class Gather, class PairOp>
  static MSCCLPP_INLINE void multiply(const Consumers& grid, std::byte* shared, const Args& args, Gather& gather,
                                      const GemmOperands<Operand, PairOp>& operands, const Matrix<T>& output) {
    std::size_t blocks = 0;
    for (int rank = 0; rank < args.team.size(); ++rank) blocks += gather.blocksOf(rank);
    const GroupedTiles order{blocks, ceilDivide(operands.weight.rows, static_cast<std::size_t>(config.tile.columns)),
                             static_cast<std::size_t>(config.groupBlocks)};
    GemmTile<T, config.tile, Consumers, Operand> tile(grid, shared);
    const ArraySink<T> sink(output.data);
    for (auto i = static_cast<std::size_t>(grid.blockIndex()); i < order.count();
         i += static_cast<std::size_t>(grid.blockCount())) {
      const TilePlace at = order(i);
      const auto place = gather.blockInOrder(at.block);
      const std::size_t row = place.block * static_cast<std::size_t>(config.tile.rows);
      const std::size_t column = at.part * static_cast<std::size_t>(config.tile.columns);
      const Range rows = gather.rowsOf(place.rank);
      const bool isOwn = place.rank == args.team.rank();
      Matrix<const Operand> input = operands.input;
      if (!isOwn) input = {gather.rows(place.rank), rows.size(), operands.input.columns, args.scratch.columns};
      PairOp op = operands.op;
      if constexpr (config.gathersScales) op = op.ofRows(isOwn ? op.inputScales : gather.scales(place.rank), rows);
      // After a failure the warps go on with meaningless data: others of the block may not know of it.
      gather.await(place);
      tile.multiply(input, row, operands.weight, column);
      tile.forEachPack(rows.begin + row, column, operands.weight.rows, op,
                       [&](std::size_t r, std::size_t c, const Pack<T>& pack) {
                         const std::size_t to = column / 2 * PairOp::outputs + c;
                         if (row + r >= rows.size() || to >= output.columns) return;
                         const std::size_t left = output.columns - to;
                         sink((rows.begin + row + r) * output.pitch + to, pack,
                              left < packSize<T> ? static_cast<int>(left) : packSize<T>);
                       });
    }
  }
};

}  // namespace mscclpp
