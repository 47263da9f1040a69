// A GEMM kernel of CUTLASS fused with an all-gather of its operand A.
#pragma once

#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/gathering_mainloop.cuh"
#include "mscclpp/fusion/cutlass/shared_bytes.hpp"
#include "mscclpp/fusion/cutlass/tile_order.cuh"

namespace mscclpp {

namespace detail {
template <class Stock, int Ranks>
struct WithGatheringMainloop {
  static_assert(sizeof(Stock) == 0,
                "the kernel must be a cutlass::gemm::kernel::GemmUniversal with its default (persistent) tile "
                "scheduler");
};
template <class Problem, class Mainloop, class Epilogue, int Ranks>
struct WithGatheringMainloop<cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue, void, void>, Ranks> {
  using Type = cutlass::gemm::kernel::GemmUniversal<Problem, GatheringMainloop<Mainloop, Ranks>, Epilogue,
                                                    OrderedTiles<GatheredRowsFirst<Ranks>>>;
};
}  // namespace detail

/// The GemmUniversal kernel `Stock` (Sm90, KernelTmaWarpSpecializedPingpong or -Cooperative) whose A consists of rows
/// of all ranks: rank r has those from r * s on, s = the rows divided by the ranks, rounded up. It takes the arguments
/// of Stock, but that those of the main loop have the arguments of a row gather as well, and A is the rank's own rows,
/// if s is a multiple of the rows of a tile; without A (null) they lie in the matrix of its window
/// (scratch.rowOffset(rank, rank, 0)) before the call. One warp of each block sends them to the peers; tiles are
/// computed in the order in which their rows arrive.
///
/// Launch it as GemmRowExchange. Order and errors are those of a RowGather. The sources of the idea are Flux (arXiv
/// 2406.06858) and Triton-distributed (arXiv 2504.19442).
template <class Stock, int Ranks>
class AllGatherGemmKernel : public detail::WithGatheringMainloop<Stock, Ranks>::Type {
 public:
  using Base = typename detail::WithGatheringMainloop<Stock, Ranks>::Type;
  using Mainloop = GatheringMainloop<typename Stock::CollectiveMainloop, Ranks>;
  using Scratch = typename Mainloop::Scratch;
  using typename Base::Arguments;
  using typename Base::Params;
  using typename Base::SharedStorage;
  static_assert(Base::SharedStorageSize <= detail::largestSharedBytes,
                "leave 256 bytes of shared memory to the gather: StageCountAutoCarveout<sizeof(...) + 256>");

  /// The scratch for problems of up to `maxRows` rows of `columns` elements; of one call with `rows` rows.
  static Scratch scratchFor(std::size_t maxRows, std::size_t rows, std::size_t columns) {
    constexpr int rowsPerPart = 8;
    return {{ceilDivide(maxRows, std::size_t{Ranks}), columns, Mainloop::tileRows, rowsPerPart, Ranks},
            ceilDivide(rows, std::size_t{Ranks})};
  }

  /// As the stock kernel's; without sending blocks, which are those of a RowExchangeKernel.
  static bool can_implement(const Arguments& arguments) {
    return arguments.scheduler.sendingBlocks == 0 && Base::can_implement(arguments);
  }
  static Params to_underlying_arguments(const Arguments& arguments, void* workspace) {
    Arguments ordered = arguments;
    ordered.scheduler.rank = arguments.mainloop.gather.team.rank();
    return Base::to_underlying_arguments(ordered, workspace);
  }

  CUTLASS_DEVICE void operator()(const Params& params, char* shared) {
    const auto& args = params.mainloop.gather;
    const gpu::Grid grid;
    if (grid.block().rank() == 0) {
      auto& state = reinterpret_cast<SharedStorage*>(shared)->tensors.mainloop;
      state.epoch = args.epochs.current(grid);
      state.hasStopped = args.epochs.hasStopped(state.epoch) ? 1 : 0;
    }
    grid.block().sync();
    Base::operator()(params, shared);
    const gpu::WarpGrid consumers = detail::consumerGrid();
    if (!consumers.isMember()) return;
    Mainloop::awaitSender();
    const auto& state = reinterpret_cast<const SharedStorage*>(shared)->tensors.mainloop;
    if (state.hasStopped == 0) args.epochs.advance(consumers, state.epoch + 1);
  }
};

}  // namespace mscclpp
