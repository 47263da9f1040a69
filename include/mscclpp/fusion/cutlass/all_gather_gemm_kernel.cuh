// A GEMM kernel of CUTLASS fused with an all-gather of its operand A.
#pragma once

#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/gathering_mainloop.cuh"
#include "mscclpp/fusion/cutlass/shared_bytes.hpp"
#include "mscclpp/fusion/cutlass/tile_order.cuh"

namespace mscclpp {

/// Shared memory that the stock kernel leaves to an AllGatherGemmKernel, in bytes.
inline constexpr int gatherSharedBytes = 256;

namespace detail {
template <class Stock, int Ranks, int scalesPerRow>
struct WithGatheringMainloop {
  static_assert(sizeof(Stock) == 0,
                "the kernel must be a cutlass::gemm::kernel::GemmUniversal with its default (persistent) tile "
                "scheduler");
};
template <class Problem, class Mainloop, class Epilogue, int Ranks, int scalesPerRow>
struct WithGatheringMainloop<cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue, void, void>, Ranks,
                             scalesPerRow> {
  using Type = cutlass::gemm::kernel::GemmUniversal<Problem, GatheringMainloop<Mainloop, Ranks, scalesPerRow>, Epilogue,
                                                    OrderedTiles<GatheredRowsFirst<Ranks>>>;
};
}  // namespace detail

/// The GemmUniversal kernel `Stock` (Sm90, KernelTmaWarpSpecializedPingpong or -Cooperative) whose A consists of rows
/// of all ranks: rank r has those from r * s on, s = the rows divided by the ranks, rounded up. It takes the arguments
/// of Stock, but that those of the main loop have the arguments of a row gather as well, and A is the rank's own rows,
/// if s is a multiple of the rows of a tile; without A (null) they lie in the matrix of its window
/// (scratch.rowOffset(rank, rank, 0)) before the call. Tiles are computed in the order in which their rows arrive.
///
/// arguments.scheduler.sendingBlocks: the blocks, whole clusters, that compute no tiles and send the rank's rows to the
/// peers; 0: a warp of each block sends. They pay where the link takes about as long as the multiplication, as those of
/// a RowExchangeKernel. Ranks may have different numbers. Then as many blocks run as there may be, also for fewer
/// tiles.
///
/// scalesPerRow: floats that are sent with each row of A (arguments.mainloop.scales), for an epilogue such as that of a
/// GatheredScaledProduct, which Mainloop::scalesOf(arguments.mainloop) tells where they are.
///
/// Launch it as GemmRowExchange. Order and errors are those of a RowGather. The sources of the idea are Flux (arXiv
/// 2406.06858) and Triton-distributed (arXiv 2504.19442).
template <class Stock, int Ranks, int scalesPerRow = 0>
class AllGatherGemmKernel : public detail::WithGatheringMainloop<Stock, Ranks, scalesPerRow>::Type {
 public:
  using Base = typename detail::WithGatheringMainloop<Stock, Ranks, scalesPerRow>::Type;
  using Mainloop = typename Base::CollectiveMainloop;
  using Scratch = typename Mainloop::Scratch;
  using typename Base::Arguments;
  using typename Base::Params;
  using typename Base::SharedStorage;
  static_assert(Base::SharedStorageSize <= detail::largestSharedBytes,
                "leave shared memory to the gather: StageCountAutoCarveout<sizeof(...) + gatherSharedBytes>");

 private:
  using SendingShared = typename Mainloop::Sender::template Shared<static_cast<int>(Base::MaxThreadsPerBlock) / 32>;

 public:
  /// The scratch for problems of up to `maxRows` rows of `columns` elements; of one call with `rows` rows.
  static Scratch scratchFor(std::size_t maxRows, std::size_t rows, std::size_t columns) {
    return {{ceilDivide(maxRows, std::size_t{Ranks}), columns, Mainloop::tileRows, Mainloop::partRows,
             std::size_t{Mainloop::partColumns}, Ranks},
            ceilDivide(rows, std::size_t{Ranks})};
  }

  /// Whether a block has the shared memory to send without computing.
  static constexpr bool canSendForOthers =
      sizeof(SendingShared) + alignof(SendingShared) <= static_cast<std::size_t>(Base::SharedStorageSize);
  /// Whether the sending blocks are whole clusters, and others are beside them on the current GPU.
  static bool acceptsSendingBlocks(const Arguments& arguments) {
    return detail::acceptsSendingBlocks<Base>(arguments, canSendForOthers);
  }
  /// As the stock kernel's; also whether the scratch fits the problem.
  static bool can_implement(const Arguments& arguments) {
    return acceptsSendingBlocks(arguments) && Base::can_implement(arguments);
  }
  static Params to_underlying_arguments(const Arguments& arguments, void* workspace) {
    Arguments ordered = arguments;
    ordered.scheduler.rank = arguments.mainloop.gather.team.rank();
    return Base::to_underlying_arguments(ordered, workspace);
  }

  CUTLASS_DEVICE void operator()(const Params& params, char* shared) {
    const auto& args = params.mainloop.gather;
    const gpu::Grid grid;
    auto& state = reinterpret_cast<SharedStorage*>(shared)->tensors.mainloop;
    if (grid.block().rank() == 0) {
      state.epoch = args.epochs.current(grid);
      state.hasStopped = args.epochs.hasStopped(state.epoch) ? 1 : 0;
      state.arrived = 0;
    }
    grid.block().sync();
    const typename Base::TileScheduler scheduler{params.scheduler};
    const auto sender = [&] { return Mainloop::senderOf(params.mainloop, state.epoch, scheduler.computingBlocks()); };
    if constexpr (canSendForOthers) {
      if (scheduler.isSending()) return runSendingBlock(sender(), scheduler, shared);
    }
    Base::operator()(params, shared);
    // CUTLASS has nothing to do for the second and the fourth warp of the producers.
    const int warp = cutlass::canonical_warp_idx_sync();
    const bool sends = scheduler.sendingBlocks() == 0;
    if (warp == 1) return Mainloop::watch(params.mainloop, state, scheduler);
    if (warp == 3 && sends) {
      sender().send({grid.blockIndex(), grid.blockCount(), 0, 1});
      return Mainloop::endSending();
    }
    const gpu::WarpGrid consumers = detail::consumerGrid();
    if (!consumers.isMember()) return;
    if (sends) Mainloop::awaitSender();
    if (state.hasStopped == 0) args.epochs.advance(consumers, state.epoch + 1);
  }

 private:
  /// Of a block that computes no tiles, in the shared memory of the others' operands.
  CUTLASS_DEVICE static void runSendingBlock(const typename Mainloop::Sender& sender,
                                             const typename Base::TileScheduler& scheduler, char* shared) {
    const gpu::Grid grid;
    const bool hasStopped = reinterpret_cast<SharedStorage*>(shared)->tensors.mainloop.hasStopped != 0;
    grid.block().sync();  // all have read the state
    const auto address = reinterpret_cast<std::uintptr_t>(shared);
    auto& parts = *reinterpret_cast<SendingShared*>(roundUp(address, std::uintptr_t{alignof(SendingShared)}));
    sender.sendByBlock(static_cast<int>(scheduler.block()), static_cast<int>(scheduler.sendingBlocks()), parts);
    if (!hasStopped) sender.args.epochs.advance(grid, sender.epoch + 1);
  }
};

}  // namespace mscclpp
