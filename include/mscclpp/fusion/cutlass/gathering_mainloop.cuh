// A collective main loop of CUTLASS that waits for rows of A from other ranks, while two warps send this rank's.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_mma.hpp>

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/matrix_gather.hpp"
#include "mscclpp/collective/row_gather.hpp"

namespace mscclpp {

/// The collective main loop `Stock` of a GEMM whose A is gathered from all ranks, in the window of a row gather
/// (MatrixGather). The loading warp waits for the columns of the tile's rows that it loads next by TMA: a tile is
/// multiplied while its rows arrive. Two warps of its warp group, which CUTLASS leaves idle, send this rank's rows to
/// the others. Ranks: the number of ranks, fixed. For the operands of Stock without auxiliary loads of its own.
template <class Stock, int Ranks>
class GatheringMainloop : public Stock {
 public:
  using Scratch = MatrixGather<typename Stock::ElementA>;
  using GatherArgs = CollectiveArgs<Ranks, Scratch>;
  static_assert(!cutlass::gemm::kernel::detail::HasAuxiliaryLoad_v<typename Stock::DispatchPolicy>,
                "an auxiliary load would take the fourth warp, which sends");
  static constexpr int tileRows = cute::size<0>(typename Stock::TileShape{});
  static constexpr int tileColumns = cute::size<1>(typename Stock::TileShape{});
  static constexpr int tileDepth = cute::size<2>(typename Stock::TileShape{});
  /// Of A, in a part of a block: of 2 KB of each row, a warp that sends has all loads in flight before the first store.
  static constexpr int partColumns = 2048 / sizeof(typename Stock::ElementA);
  static constexpr int partRows = 8;
  static_assert(partColumns % tileDepth == 0);

  /// ptr_A, dA: this rank's own rows, which are multiplied and sent from there; null: they are in the matrix of the
  /// gather. Only slices of whole tiles can be elsewhere.
  struct Arguments : Stock::Arguments {
    GatherArgs gather{};  ///< count: the rows of the problem
  };
  struct Params : Stock::Params {
    typename Stock::Params own;  ///< of own rows that are not in the matrix
    int firstOwn, endOwn;        ///< rows of tiles of these; none: the same number
    const std::byte* ownRows;    ///< wherever they are
    std::size_t ownPitch;        ///< bytes
    std::uint32_t columnTiles;
    GatherArgs gather;
  };
  struct TensorStorage : Stock::TensorStorage {
    std::uint64_t epoch;       ///< of this call, written before the warps take their roles
    std::uint32_t hasStopped;  ///< an earlier call has failed
  };
  struct SharedStorage {
    TensorStorage tensors;
    typename Stock::PipelineStorage pipeline;
  };

  template <class ProblemShape>
  static Params to_underlying_arguments(const ProblemShape& problem, const Arguments& arguments, void* workspace) {
    Params params{};
    static_cast<typename Stock::Params&>(params) =
        Stock::to_underlying_arguments(problem, withMatrix(arguments), workspace);
    const GatherArgs& gather = arguments.gather;
    params.gather = gather;
    params.columnTiles = static_cast<std::uint32_t>(ceilDivide(int{cute::get<1>(problem)}, tileColumns));
    const int rank = gather.team.rank();
    if (arguments.ptr_A == nullptr) {
      params.ownRows = gather.window.at(rank, gather.scratch.rowOffset(0, rank, 0));
      params.ownPitch = gather.scratch.rowBytes();
      return params;
    }
    params.ownRows = reinterpret_cast<const std::byte*>(arguments.ptr_A);
    params.ownPitch = static_cast<std::size_t>(cute::get<0>(arguments.dA)) * sizeof(typename Stock::ElementA);
    params.own = Stock::to_underlying_arguments(ownProblem(problem, gather), arguments, workspace);
    const int perSlice = static_cast<int>(gather.scratch.slice / tileRows);
    params.firstOwn = rank * perSlice;
    params.endOwn = params.firstOwn + perSlice;
    return params;
  }
  /// Also whether the scratch fits the problem.
  template <class ProblemShape>
  static bool can_implement(const ProblemShape& problem, const Arguments& arguments) {
    const auto shape = cute::append<4>(problem, 1);
    const auto& gather = arguments.gather;
    const auto rows = static_cast<std::size_t>(cute::get<0>(shape));
    return cute::get<3>(shape) == 1 && gather.count == rows &&
           gather.scratch.columns == static_cast<std::size_t>(cute::get<2>(shape)) && gather.scratch.ranks == Ranks &&
           gather.scratch.rowsPerBlock == tileRows && gather.scratch.rowsPerPart == partRows &&
           gather.scratch.columnsPerPart == std::size_t{partColumns} &&
           gather.scratch.accepts(ceilDivide(rows, std::size_t{Ranks})) &&
           Stock::can_implement(problem, withMatrix(arguments)) &&
           (arguments.ptr_A == nullptr ||
            (gather.scratch.slice % tileRows == 0 && Stock::can_implement(ownProblem(problem, gather), arguments)));
  }

  /// As the main loop's of CUTLASS, by the loading warp.
  template <class Pipeline, class State, class Inputs, class Coordinates, class Iterator>
  CUTLASS_DEVICE void load(const Params& params, Pipeline pipeline, State state, const Inputs& inputs,
                           const Coordinates& at, Iterator tiles, int count, int thread, std::uint32_t blockInCluster,
                           TensorStorage& shared) {
    const int tile = static_cast<int>(cute::get<0>(at));
    const bool isOwn = tile >= params.firstOwn && tile < params.endOwn;
    if (isOwn || shared.hasStopped != 0) {
      auto from = at;
      if (isOwn) cute::get<0>(from) = tile - params.firstOwn;
      const typename Stock::Params& matrix = isOwn ? params.own : static_cast<const typename Stock::Params&>(params);
      Stock::load(matrix, pipeline, state, inputs, from, tiles, count, thread, blockInCluster, shared);
      return;
    }
    constexpr int perPart = partColumns / tileDepth;
    for (int first = 0; first < count;) {
      const int parts = awaitRows(params.gather, static_cast<std::size_t>(tile), first / perPart, shared.epoch);
      const int steps = count - first < parts * perPart ? count - first : parts * perPart;
      Stock::load(params, pipeline, state, inputs, at, tiles, steps, thread, blockInCluster, shared);
      state.advance(static_cast<std::uint32_t>(steps));
      for (int step = 0; step < steps; ++step) ++tiles;
      first += steps;
    }
  }
  /// Called by `senders` warps of each block, with their numbers: they send this rank's rows. The consumers call
  /// awaitSenders() before they end the call.
  CUTLASS_DEVICE static void send(const Params& params, const TensorStorage& shared, int sender) {
    const auto& args = params.gather;
    const Sender grid{gpu::Grid{}.warps(gpu::Grid{}.warpIndex(), 1), sender};
    auto wait = args.wait;
    NoTrace trace;
    auto gather = makeRowGather(grid, args, wait, trace);
    if (gather.send(params.ownRows, params.ownPitch, args.scratch.rowBytes(), sendOrder(params)) &&
        grid.warp().rank() == 0) {
      countSender(args, shared.epoch);
    }
    gather.leave();
    arch::namedBarrierArrive(sentBarrier, barrierThreads());
  }
  static constexpr int senders = 2;  ///< of a block
  CUTLASS_DEVICE static void awaitSenders() { arch::namedBarrierSync(sentBarrier, barrierThreads()); }

 private:
  /// A warp that sends, as a grid of all of these.
  struct Sender : gpu::WarpGrid {
    int number;
    CUTLASS_DEVICE int warpIndex() const { return number; }
    CUTLASS_DEVICE int warpCount() const { return senders; }
  };

  static constexpr int sentBarrier = 9;  // CUTLASS uses those below 8
  CUTLASS_DEVICE static int barrierThreads() { return gpu::Grid{}.block().size() - 2 * gpu::WarpTile<>::width; }

  /// Of this rank.
  static std::size_t rowsOf(const GatherArgs& gather) {
    return steppedPart(gather.count, gather.scratch.slice, static_cast<std::size_t>(gather.team.rank())).size();
  }
  template <class ProblemShape>
  static auto ownProblem(const ProblemShape& problem, const GatherArgs& gather) {
    auto shape = cute::append<4>(problem, 1);
    const std::size_t rows = rowsOf(gather);
    cute::get<0>(shape) = rows > 0 ? static_cast<int>(rows) : 1;  // a rank without rows loads none
    return shape;
  }
  static typename Stock::Arguments withMatrix(const Arguments& arguments) {
    typename Stock::Arguments stock = arguments;
    const auto& gather = arguments.gather;
    stock.ptr_A = reinterpret_cast<const typename Stock::ElementA*>(gather.window.base[gather.team.rank()] +
                                                                    gather.scratch.matrixOffset());
    cute::get<0>(stock.dA) = static_cast<std::int64_t>(gather.scratch.columns);
    return stock;
  }

  /// The tiles of as many rows of tiles as there are blocks for are computed at the same time. And each warp sends what
  /// it has for a peer in a few pieces, if rows are long enough: tiles can begin with the first ones, and each has a
  /// system-wide fence.
  CUTLASS_DEVICE static RowSendOrder sendOrder(const Params& params) {
    constexpr std::uint32_t pieces = 4;
    const auto& scratch = params.gather.scratch;
    const auto blocks = static_cast<std::uint32_t>(gpu::launchBlocks());
    const std::uint32_t together = blocks / params.columnTiles;
    const std::size_t parts =
        ceilDivide(scratch.slice, std::size_t{partRows}) * static_cast<std::size_t>(scratch.columnParts());
    return {together > 0 ? together : 1,
            static_cast<std::uint32_t>(ceilDivide(parts, std::size_t{blocks} * senders * pieces))};
  }
  /// One thread of each warp that has sent all of its parts. The last one of all blocks tells the peers.
  CUTLASS_DEVICE static void countSender(const GatherArgs& args, std::uint64_t epoch) {
    const int own = args.team.rank();
    auto* const sent = reinterpret_cast<std::uint64_t*>(args.window.at(own, args.scratch.sendersOffset()));
    const auto all = static_cast<std::uint64_t>(senders * gpu::launchBlocks());
    if (arch::fetchAdd<arch::Order::AcqRel, arch::Scope::Device>(sent, std::uint64_t{1}) + 1 != all) return;
    arch::store<arch::Order::Relaxed, arch::Scope::Device>(sent, std::uint64_t{0});
    for (int i = 0; i < Ranks - 1; ++i) {
      arch::store<arch::Order::Release, arch::Scope::System>(
          reinterpret_cast<std::uint64_t*>(args.window.at(args.team.peer(i), args.scratch.completeOffset(own))), epoch);
    }
  }

  /// Waits until the columns of part `first` of all rows of other ranks that a row of tiles overlaps have arrived.
  /// Returns of how many parts, this one and those behind it, they have: one proxy fence for all of them, which takes
  /// 2.4 us beside TMA loads. All lanes of a warp. After a failure they go on with meaningless data.
  CUTLASS_DEVICE int awaitRows(const GatherArgs& args, std::size_t tile, int first, std::uint64_t epoch) {
    const auto& scratch = args.scratch;
    int parts = scratch.columnParts() - first;
    if (hasFailed_) return parts;  // a call ends within one time limit, however many tiles it has
    const int own = args.team.rank();
    const auto perBlock = static_cast<std::size_t>(scratch.rowsPerBlock);
    const std::size_t end = (tile + 1) * tileRows < args.count ? (tile + 1) * tileRows : args.count;
    auto wait = args.wait;
    bool hasWaited = false;
    for (std::size_t row = tile * tileRows; row < end;) {
      const int from = static_cast<int>(row / scratch.slice);
      const std::size_t inSlice = row - static_cast<std::size_t>(from) * scratch.slice;
      const std::size_t block = inSlice / perBlock;
      if (from != own && (first > 0 || !isComplete(args, from, epoch))) {
        parts = awaitBlock(args, from, block, first, parts, epoch, wait);
        hasWaited = true;
      }
      const std::size_t endOfBlock = (block + 1) * perBlock < scratch.slice ? (block + 1) * perBlock : scratch.slice;
      row = static_cast<std::size_t>(from) * scratch.slice + endOfBlock;
    }
    if (!hasWaited) return parts;
    hasFailed_ = gpu::WarpTile<>().any(hasFailed(wait));
    gpu::WarpTile<>().sync();  // one lane loads what all lanes have acquired
    arch::bulkFenceAll();      // by TMA
    if (hasFailed_) args.epochs.stop(epoch);
    return parts;
  }
  /// Whether all rows of a rank have arrived: then no more looks are needed. All lanes.
  CUTLASS_DEVICE bool isComplete(const GatherArgs& args, int from, std::uint64_t epoch) {
    static_assert(Ranks <= 32);
    if ((complete_ >> from & 1u) != 0) return true;
    const auto* const word =
        reinterpret_cast<const std::uint64_t*>(args.window.at(args.team.rank(), args.scratch.completeOffset(from)));
    if (!gpu::WarpTile<>().all(arch::load<arch::Order::Acquire, arch::Scope::System>(word) == epoch)) return false;
    complete_ |= 1u << from;
    arch::bulkFenceAll();  // as in awaitRows()
    return true;
  }
  /// The same for a block of rows, of at most `most` parts.
  template <class Wait>
  CUTLASS_DEVICE static int awaitBlock(const GatherArgs& args, int from, std::size_t block, int first, int most,
                                       std::uint64_t epoch, Wait& wait) {
    const gpu::WarpTile<> warp;
    const auto& scratch = args.scratch;
    const int own = args.team.rank(), rowParts = scratch.rowParts();
    static_assert(tileRows <= partRows * gpu::WarpTile<>::width, "a warp looks at all words of a part at once");
    const auto* const words = reinterpret_cast<const std::uint64_t*>(
        args.window.at(own, scratch.readyOffset(own, from, block, scratch.partAt(first, 0))));
    const int count = most * rowParts;  // of words, part by part
    const WaitSite site{WaitOperation::Progress, own, from, static_cast<std::uint32_t>(gpu::Grid{}.blockIndex()),
                        epoch};
    // Words that have arrived of those from `begin` on, at most one for each lane.
    const auto look = [&](int begin, std::uint64_t& seen) {
      const int word = begin + warp.rank();
      seen = word < count ? arch::load<arch::Order::Acquire, arch::Scope::System>(words + word) : epoch;
      const std::uint32_t missing = warp.ballot(seen != epoch);
      return missing == 0 ? warp.size() : arch::countBits((missing & (0u - missing)) - 1);
    };
    int arrived = 0, found = 0;
    wait.untilCollective(warp, site, [&](std::uint64_t& seen) {
      arrived = found = look(0, seen);
      return arrived >= rowParts;
    });
    std::uint64_t seen = 0;
    for (; found == warp.size() && arrived < count; arrived += found) found = look(arrived, seen);
    const int parts = (arrived < count ? arrived : count) / rowParts;
    return parts > 0 ? parts : 1;  // after a failure
  }

  // Of the loading warp.
  bool hasFailed_ = false;      ///< a wait
  std::uint32_t complete_ = 0;  ///< ranks of which all rows have arrived, as bits
};

}  // namespace mscclpp
