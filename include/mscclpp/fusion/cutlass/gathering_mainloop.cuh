// A collective main loop of CUTLASS that waits for rows of A from other ranks, while other warps send this rank's.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_mma.hpp>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/shared_word.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/matrix_gather.hpp"
#include "mscclpp/collective/row_gather.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/row_arrivals.cuh"
#include "mscclpp/fusion/cutlass/row_sender.cuh"
#include "mscclpp/fusion/cutlass/scaled_product.cuh"

namespace mscclpp {

/// The collective main loop `Stock` of a GEMM whose A is gathered from all ranks, in the window of a row gather
/// (MatrixGather). One of the two warps of its warp group that CUTLASS leaves idle watches for the columns of the rows
/// of the block's tiles, and the loading warp loads by TMA what has arrived: a tile is multiplied while its rows
/// arrive. The other warp sends this rank's rows, or blocks that compute nothing do. Ranks: the number of ranks, fixed.
/// scalesPerRow: floats that are sent with each row, for the epilogue. For the operands of Stock without auxiliary
/// loads of its own.
template <class Stock, int Ranks, int scalesPerRow>
class GatheringMainloop : public Stock {
 public:
  using Scratch = MatrixGather<typename Stock::ElementA, scalesPerRow>;
  using GatherArgs = CollectiveArgs<Ranks, Scratch>;
  static_assert(!cutlass::gemm::kernel::detail::HasAuxiliaryLoad_v<typename Stock::DispatchPolicy>,
                "an auxiliary load would take the fourth warp, which sends");
  static constexpr int tileRows = cute::size<0>(typename Stock::TileShape{});
  static constexpr int tileColumns = cute::size<1>(typename Stock::TileShape{});
  static constexpr int tileDepth = cute::size<2>(typename Stock::TileShape{});
  /// Of A, in a part of a block: of 2 KB of each row, a warp that sends has all loads in flight before the first store.
  static constexpr int partBytes = 2048, partRows = 8;
  static constexpr int partColumns = partBytes / sizeof(typename Stock::ElementA);
  static_assert(partColumns % tileDepth == 0);
  static_assert(tileRows <= partRows * gpu::WarpTile<>::width, "a warp looks at all words of a part at once");
  using Sender = detail::RowSender<Ranks, Scratch, partRows, partBytes>;

  /// ptr_A, dA: this rank's own rows, which are multiplied and sent from there; null: they are in the matrix of the
  /// gather, and their scales in its array of scales. Only slices of whole tiles can be elsewhere.
  struct Arguments : Stock::Arguments {
    GatherArgs gather{};            ///< count: the rows of the problem
    const float* scales = nullptr;  ///< of own rows that are not in the matrix, if the gather has scales
  };
  struct Params : Stock::Params {
    typename Stock::Params own;  ///< of own rows that are not in the matrix
    int firstOwn, endOwn;        ///< rows of tiles of these; none: the same number
    SentRows ownRows;            ///< wherever they are
    std::uint32_t columnTiles;
    GatherArgs gather;

    CUTLASS_DEVICE bool isOwn(int tile) const { return tile >= firstOwn && tile < endOwn; }
  };
  struct TensorStorage : Stock::TensorStorage {
    std::uint64_t epoch;       ///< of this call, written before the warps take their roles
    std::uint32_t hasStopped;  ///< an earlier call has failed
    std::uint32_t arrived;     ///< columns of parts of the block's tiles, one tile after the other; none at the start
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
      params.ownRows = {gather.window.at(rank, gather.scratch.rowOffset(rank, rank, 0)), gather.scratch.rowBytes(),
                        gather.scratch.rowBytes(), scalesInWindow(gather, rank)};
      return params;
    }
    params.ownRows = {arguments.ptr_A,
                      static_cast<std::size_t>(cute::get<0>(arguments.dA)) * sizeof(typename Stock::ElementA),
                      gather.scratch.rowBytes(), arguments.scales};
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
           (arguments.scales != nullptr) == (scalesPerRow > 0 && arguments.ptr_A != nullptr) &&
           (arguments.ptr_A == nullptr ||
            (gather.scratch.slice % tileRows == 0 && Stock::can_implement(ownProblem(problem, gather), arguments)));
  }
  /// Where an epilogue finds the scales of the rows of a tile that has been multiplied. Called once ptr_A, gather and
  /// scales have been set.
  static GatheredScales scalesOf(const Arguments& arguments) {
    static_assert(scalesPerRow <= 1, "GatheredScales have one scale for each row");
    const GatherArgs& gather = arguments.gather;
    const float* const all = scalesInWindow(gather, 0);
    if (arguments.ptr_A == nullptr) return {all};
    const Range own = ownRange(gather);
    return {all, arguments.scales, static_cast<int>(own.begin), static_cast<int>(own.end)};
  }

  /// As the main loop's of CUTLASS, by the loading warp.
  template <class Pipeline, class State, class Inputs, class Coordinates, class Iterator>
  CUTLASS_DEVICE void load(const Params& params, Pipeline pipeline, State state, const Inputs& inputs,
                           const Coordinates& at, Iterator tiles, int count, int thread, std::uint32_t blockInCluster,
                           TensorStorage& shared) {
    const int tile = static_cast<int>(cute::get<0>(at));
    if (shared.hasStopped != 0) {
      Stock::load(params, pipeline, state, inputs, at, tiles, count, thread, blockInCluster, shared);
    } else if (params.isOwn(tile)) {
      auto from = at;
      cute::get<0>(from) = tile - params.firstOwn;
      Stock::load(params.own, pipeline, state, inputs, from, tiles, count, thread, blockInCluster, shared);
    } else {
      const ArrivedTiles<Iterator> arrived{tiles, &shared.arrived, loaded_ * stepsOfPart};
      Stock::load(params, pipeline, state, inputs, at, arrived, count, thread, blockInCluster, shared);
      loaded_ += static_cast<std::uint32_t>(params.gather.scratch.columnParts());
    }
  }
  /// Tells the loading warp what has arrived of the tiles that a scheduler has for the block, in their order. All lanes
  /// of a warp.
  template <class Scheduler>
  CUTLASS_DEVICE static void watch(const Params& params, TensorStorage& shared, Scheduler scheduler) {
    if (shared.hasStopped != 0) return;
    const gpu::WarpTile<> warp;
    const auto all = static_cast<std::uint32_t>(params.gather.scratch.columnParts());
    detail::RowArrivals<Ranks, Scratch> arrivals(params.gather, shared.epoch, tileRows);
    std::uint32_t arrived = 0;
    for (auto work = scheduler.get_current_work(); work.is_valid(); work = scheduler.get_current_work()) {
      scheduler.advance_to_next_work();
      if (params.isOwn(work.M_idx)) continue;
      MSCCLPP_NO_UNROLL
      for (std::uint32_t parts = 0; parts < all;) {
        parts += arrivals.await(static_cast<std::uint32_t>(work.M_idx), parts);
        warp.sync();              // one lane loads what all lanes have acquired
        arch::bulkFenceGlobal();  // by TMA
        if (warp.rank() == 0) arch::storeSharedRelease(&shared.arrived, arrived + parts);
      }
      arrived += all;
    }
  }
  /// For this rank's rows, while so many blocks compute: the tiles of as many rows of tiles as there are blocks for are
  /// computed at the same time.
  CUTLASS_DEVICE static Sender senderOf(const Params& params, std::uint64_t epoch, std::uint32_t computingBlocks) {
    const std::uint32_t together = computingBlocks / params.columnTiles, most = params.gather.scratch.slice / tileRows;
    const std::uint32_t rows = together < most ? together : most;
    return {params.gather, params.ownRows, epoch, rows > 0 ? rows : 1};
  }

  /// A warp that sends beside a block's computation calls endSending() after it; the consumers call awaitSender()
  /// before they end the call.
  CUTLASS_DEVICE static void endSending() { arch::namedBarrierArrive(detail::sentBarrier, barrierThreads()); }
  CUTLASS_DEVICE static void awaitSender() { arch::namedBarrierSync(detail::sentBarrier, barrierThreads()); }

 private:
  static constexpr std::uint32_t stepsOfPart = partColumns / tileDepth;

  /// The steps of a tile, each of which is dereferenced once its columns have arrived. By one thread.
  template <class Iterator>
  struct ArrivedTiles {
    Iterator step;
    const std::uint32_t* arrived;
    std::uint32_t number;     ///< of the step, from the first tile on
    std::uint32_t known = 0;  ///< steps that have arrived

    CUTLASS_DEVICE decltype(auto) operator*() {
      // Without a time limit: watch() has one for each of its waits, and goes on after a failure.
      while (number >= known) known = arch::loadSharedAcquire(arrived) * stepsOfPart;
      return *step;
    }
    CUTLASS_DEVICE ArrivedTiles& operator++() {
      ++step;
      ++number;
      return *this;
    }
  };

  /// The consumers, and the warp that sends.
  CUTLASS_DEVICE static int barrierThreads() { return gpu::Grid{}.block().size() - 3 * gpu::WarpTile<>::width; }

  /// From a rank's rows on, in this rank's window.
  static const float* scalesInWindow(const GatherArgs& gather, int from) {
    const int rank = gather.team.rank();
    return reinterpret_cast<const float*>(gather.window.at(rank, gather.scratch.scalesOffset(rank, from, 0)));
  }
  /// The rows of this rank.
  static Range ownRange(const GatherArgs& gather) {
    return steppedPart(gather.count, gather.scratch.slice, static_cast<std::size_t>(gather.team.rank()));
  }
  template <class ProblemShape>
  static auto ownProblem(const ProblemShape& problem, const GatherArgs& gather) {
    auto shape = cute::append<4>(problem, 1);
    const std::size_t rows = ownRange(gather).size();
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

  std::uint32_t loaded_ = 0;  ///< columns of parts that the loading warp has loaded
};

}  // namespace mscclpp
