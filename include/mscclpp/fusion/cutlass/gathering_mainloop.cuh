// A collective main loop of CUTLASS that waits for rows of A from other ranks, while a warp sends this rank's.
#pragma once

#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_mma.hpp>

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/group.hpp"
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

  /// ptr_A and dA are not used: A is the matrix of the gather.
  struct Arguments : Stock::Arguments {
    GatherArgs gather{};  ///< count: the rows of the problem
  };
  struct Params : Stock::Params {
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
    params.gather = arguments.gather;
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
           Stock::can_implement(problem, withMatrix(arguments));
  }

  /// As the main loop's of CUTLASS, by the loading warp.
  template <class Pipeline, class State, class Inputs, class Coordinates, class Iterator>
  CUTLASS_DEVICE void load(const Params& params, Pipeline pipeline, State state, const Inputs& inputs,
                           const Coordinates& at, Iterator tiles, int count, int thread, std::uint32_t blockInCluster,
                           TensorStorage& shared) {
    if (shared.hasStopped == 0) awaitRows(params.gather, static_cast<std::size_t>(cute::get<0>(at)), shared.epoch);
    Stock::load(params, pipeline, state, inputs, at, tiles, count, thread, blockInCluster, shared);
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
    gather.send(args.window.at(args.team.rank(), args.scratch.rowOffset(0, args.team.rank(), 0)),
                args.scratch.rowBytes(), args.scratch.rowBytes());
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
