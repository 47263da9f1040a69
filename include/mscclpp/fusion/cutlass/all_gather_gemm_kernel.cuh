// A GEMM kernel of CUTLASS fused with an all-gather of its operand A.
#pragma once

#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/gathering_mainloop.cuh"
#include "mscclpp/fusion/cutlass/shared_bytes.hpp"
#include "mscclpp/fusion/cutlass/tile_order.cuh"

namespace mscclpp {

/// Shared memory that the stock kernel leaves to an AllGatherGemmKernel, in bytes.
inline constexpr int gatherSharedBytes = 256;

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
/// (scratch.rowOffset(rank, rank, 0)) before the call. Two warps of each block send them to the peers; tiles are
/// computed in the order in which their rows arrive.
///
/// Launch it as GemmRowExchange. Order and errors are those of a RowGather. The sources of the idea are Flux (arXiv
/// 2406.06858) and Triton-distributed (arXiv 2504.19442).
template <class Stock, int Ranks>
class AllGatherGemmKernel : public detail::WithGatheringMainloop<Stock, Ranks>::Type {
 public:
  using Base = typename detail::WithGatheringMainloop<Stock, Ranks>::Type;
  using Mainloop = typename Base::CollectiveMainloop;
  using Scratch = typename Mainloop::Scratch;
  using typename Base::Arguments;
  using typename Base::Params;
  using typename Base::SharedStorage;
  static_assert(Base::SharedStorageSize <= detail::largestSharedBytes,
                "leave shared memory to the gather: StageCountAutoCarveout<sizeof(...) + gatherSharedBytes>");

  /// The scratch for problems of up to `maxRows` rows of `columns` elements; of one call with `rows` rows.
  static Scratch scratchFor(std::size_t maxRows, std::size_t rows, std::size_t columns) {
    return {{ceilDivide(maxRows, std::size_t{Ranks}), columns, Mainloop::tileRows, Mainloop::partRows,
             std::size_t{Mainloop::partColumns}, Ranks},
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
    auto& state = reinterpret_cast<SharedStorage*>(shared)->tensors.mainloop;
    // CUTLASS has nothing to do for the second and the fourth warp of the producers.
    const int warp = cutlass::canonical_warp_idx_sync();
    if (warp == 1 || warp == 3) return Mainloop::send(params.mainloop, state, warp / 2);
    const gpu::WarpGrid consumers = detail::consumerGrid();
    if (!consumers.isMember()) return;
    Mainloop::awaitSenders();
    if (state.hasStopped == 0) args.epochs.advance(consumers, state.epoch + 1);
  }
};

}  // namespace mscclpp
