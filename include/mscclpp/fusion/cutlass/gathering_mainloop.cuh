// A collective main loop of CUTLASS that waits for rows of A from other ranks, while a warp sends this rank's.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_mma.hpp>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/matrix_gather.hpp"
#include "mscclpp/collective/row_gather.hpp"

namespace mscclpp {

/// The dispatch policy Stock with an auxiliary load warp: the one that sends.
template <class Stock>
struct GatheringPolicy : Stock {};

/// The collective main loop `Stock` of a GEMM whose A is gathered from all ranks, in the window of a row gather
/// (MatrixGather). The loading warp waits for the blocks of rows that a tile needs before it loads the tile's A by TMA;
/// the fourth warp of its warp group, which CUTLASS leaves idle, sends this rank's rows to the others. Ranks: the
/// number of ranks, fixed. For the operands of Stock without auxiliary loads of its own.
template <class Stock, int Ranks>
class GatheringMainloop : public Stock {
 public:
  using DispatchPolicy = GatheringPolicy<typename Stock::DispatchPolicy>;
  using Scratch = MatrixGather<typename Stock::ElementA>;
  using GatherArgs = CollectiveArgs<Ranks, Scratch>;
  static_assert(!cutlass::gemm::kernel::detail::HasAuxiliaryLoad_v<typename Stock::DispatchPolicy>,
                "this main loop uses its fourth warp itself");
  static constexpr int tileRows = cute::size<0>(typename Stock::TileShape{});

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
    if (arguments.ptr_A == nullptr) {
      params.ownRows = gather.window.at(gather.team.rank(), gather.scratch.rowOffset(0, gather.team.rank(), 0));
      params.ownPitch = gather.scratch.rowBytes();
      return params;
    }
    params.own = Stock::to_underlying_arguments(ownProblem(problem, gather), arguments, workspace);
    const int perSlice = static_cast<int>(gather.scratch.slice / tileRows);
    params.firstOwn = gather.team.rank() * perSlice;
    params.endOwn = params.firstOwn + perSlice;
    params.ownRows = reinterpret_cast<const std::byte*>(arguments.ptr_A);
    params.ownPitch = static_cast<std::size_t>(cute::get<0>(arguments.dA)) * sizeof(typename Stock::ElementA);
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
    if (shared.hasStopped == 0 && !isOwn) awaitRows(params.gather, static_cast<std::size_t>(tile), shared.epoch);
    auto from = at;
    if (isOwn) cute::get<0>(from) = tile - params.firstOwn;
    const typename Stock::Params& matrix = isOwn ? params.own : static_cast<const typename Stock::Params&>(params);
    Stock::load(matrix, pipeline, state, inputs, from, tiles, count, thread, blockInCluster, shared);
  }
  /// By the fourth warp, for each tile: sends this rank's rows, once.
  template <class Pipeline, class State, class Inputs, class Coordinates, class Iterator>
  CUTLASS_DEVICE void load_auxiliary(const Params& params, Pipeline /*pipeline*/, State /*state*/,
                                     const Inputs& /*inputs*/, const Coordinates& /*at*/, Iterator /*tiles*/,
                                     int /*count*/, int /*thread*/, std::uint32_t /*blockInCluster*/,
                                     TensorStorage& /*shared*/) {
    if (hasSent_) return;
    hasSent_ = true;
    const auto& args = params.gather;
    const gpu::WarpGrid sender = gpu::Grid{}.warps(senderWarp, 1);
    auto wait = args.wait;
    NoTrace trace;
    auto gather = makeRowGather(sender, args, wait, trace);
    gather.send(params.ownRows, params.ownPitch, args.scratch.rowBytes());
    gather.leave();
    arch::namedBarrierArrive(sentBarrier, barrierThreads());
  }
  /// By the consumers, after their last tile: waits until the sender of the block has done its part.
  CUTLASS_DEVICE static void awaitSender() { arch::namedBarrierSync(sentBarrier, barrierThreads()); }
  template <class Pipeline, class State>
  CUTLASS_DEVICE void load_tail(Pipeline pipeline, State state) {
    if (gpu::Grid{}.warpIndex() != senderWarp) Stock::load_tail(pipeline, state);
  }

 private:
  static constexpr int senderWarp = 3;
  static constexpr int sentBarrier = 9;  // CUTLASS uses those below 8
  CUTLASS_DEVICE static int barrierThreads() { return gpu::Grid{}.block().size() - 3 * gpu::WarpTile<>::width; }

  template <class ProblemShape>
  static auto ownProblem(const ProblemShape& problem, const GatherArgs& gather) {
    auto shape = cute::append<4>(problem, 1);
    const std::size_t rows =
        steppedPart(gather.count, gather.scratch.slice, static_cast<std::size_t>(gather.team.rank())).size();
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

  /// Waits for all blocks of rows of other ranks that a row of tiles overlaps. All lanes of a warp. After a failure
  /// they go on with meaningless data.
  CUTLASS_DEVICE void awaitRows(const GatherArgs& args, std::size_t tile, std::uint64_t epoch) {
    if (hasFailed_) return;  // a call ends within one time limit, however many tiles it has
    const gpu::WarpTile<> warp;
    const auto& scratch = args.scratch;
    const int own = args.team.rank();
    const auto perBlock = static_cast<std::size_t>(scratch.rowsPerBlock);
    const std::size_t end = (tile + 1) * tileRows < args.count ? (tile + 1) * tileRows : args.count;
    auto wait = args.wait;
    for (std::size_t row = tile * tileRows; row < end;) {
      const int from = static_cast<int>(row / scratch.slice);
      const std::size_t inSlice = row - static_cast<std::size_t>(from) * scratch.slice;
      const std::size_t block = inSlice / perBlock;
      for (int part = warp.rank(); from != own && part < scratch.partsPerBlock(); part += warp.size()) {
        const auto* const word =
            reinterpret_cast<const std::uint64_t*>(args.window.at(own, scratch.readyOffset(own, from, block, part)));
        const WaitSite site{WaitOperation::Progress, own, from, static_cast<std::uint32_t>(gpu::Grid{}.blockIndex()),
                            epoch};
        wait.until(site, [&](std::uint64_t& seen) {
          seen = arch::load<arch::Order::Acquire, arch::Scope::System>(word);
          return seen == epoch;
        });
      }
      const std::size_t endOfBlock = (block + 1) * perBlock < scratch.slice ? (block + 1) * perBlock : scratch.slice;
      row = static_cast<std::size_t>(from) * scratch.slice + endOfBlock;
    }
    hasFailed_ = warp.any(hasFailed(wait));
    arch::bulkFenceAll();  // TMA reads what ordinary stores wrote
    if (hasFailed_) args.epochs.stop(epoch);
  }

  bool hasSent_ = false;
  bool hasFailed_ = false;  ///< a wait of the loading warp
};

}  // namespace mscclpp

namespace cutlass::gemm::kernel::detail {

template <class Stock>
struct HasAuxiliaryLoad<mscclpp::GatheringPolicy<Stock>> : cute::true_type {};

}  // namespace cutlass::gemm::kernel::detail
