// A GEMM kernel of CUTLASS whose epilogue contributes to a row exchange: the order of its tiles, and the reduction.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <utility>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/row_exchange.hpp"
#include "mscclpp/fusion/cutlass/consumer_grid.cuh"
#include "mscclpp/fusion/cutlass/exchange_arguments.cuh"
#include "mscclpp/fusion/cutlass/exchange_tiles.hpp"
#include "mscclpp/fusion/cutlass/send_queue.cuh"
#include "mscclpp/fusion/cutlass/shared_bytes.hpp"
#include "mscclpp/fusion/cutlass/tile_order.cuh"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

/// Shared memory that a stock kernel with wide tiles leaves to a row exchange which sums tiles, in bytes.
inline constexpr int exchangeSharedBytes = 16 << 10;

namespace detail {

/// What the arguments of an epilogue say of its exchange, and of the tiles of its kernel.
template <class Epilogue>
class EpilogueExchange {
  using Arguments =
      cute::remove_cvref_t<decltype(ExchangeArguments::in(std::declval<typename Epilogue::Arguments&>()))>;
  using Types = ExchangeTypes<decltype(Arguments::exchange)>;
  using TileShape = typename Epilogue::CtaTileMNK;

 public:
  static constexpr int Ranks = Types::Ranks;
  using Scratch = typename Types::Scratch;
  using Result = decltype(Arguments::result);
  using Tiles = ExchangeTiles<Ranks, Scratch, cute::size<0>(TileShape{}), cute::size<1>(TileShape{})>;
  using Order = RemoteRowsFirst<Scratch::delivery, typename Scratch::Owners, Ranks>;
  /// Whether the epilogue reduces the tiles of this rank's rows itself (SummingEpilogue).
  static constexpr bool sumsTiles = requires { Epilogue::sharesSums; };
};

/// The GemmUniversal kernel `Stock` with another epilogue and order of tiles.
template <class Stock, class Epilogue, class Order>
struct WithEpilogue {
  static_assert(sizeof(Stock) == 0,
                "the kernel must be a cutlass::gemm::kernel::GemmUniversal with its default "
                "(persistent) tile scheduler");
};
template <class Problem, class Mainloop, class StockEpilogue, class Epilogue, class Order>
struct WithEpilogue<cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, StockEpilogue, void, void>, Epilogue,
                    Order> {
  using Type = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue, OrderedTiles<Order>>;
};
template <class Stock, class Epilogue>
using OrderedKernel = typename WithEpilogue<Stock, Epilogue, typename EpilogueExchange<Epilogue>::Order>::Type;

}  // namespace detail

/// The GemmUniversal kernel `Stock` (Sm90, KernelTmaWarpSpecializedPingpong or -Cooperative) with an `Epilogue` that
/// contributes each tile to a row exchange, and announces it: what GemmRowExchange and EvtRowExchange have in common.
/// The arguments of the epilogue have members `exchange` (CollectiveArgs, count: the rows of the problem) and `result`,
/// or its visitor tree has a node with such arguments.
///
/// Tiles of other ranks' rows come first. When a block of threads has computed its last tile, its consumer warps reduce
/// rows, if the epilogue has not, store the results of other ranks, and complete the call. With RowDelivery::ToOwner
/// the output of a rank consists of outputRows(): consecutive rows, of as many tiles on all ranks, or one less on the
/// last ones. packsPerLane: registers for a row, 256 elements of 16 bits each; a result that needs whole rows needs so
/// many that a row fits.
///
/// arguments.scheduler.sendingBlocks: of an epilogue that adds up tiles itself, the blocks, whole clusters, that
/// compute no tiles and send those of all others; 0: each block sends its own. They pay where the link takes about as
/// long as the multiplication: stores that the link has not taken yet are in the way of the loads of a block that
/// computes. Ranks may have different numbers. Then as many blocks run as there may be, also for fewer tiles.
///
/// Launch it as any kernel of CUTLASS 3 (GemmUniversalAdapter), on all ranks, with at most as many blocks as are
/// resident at once, which is CUTLASS's own rule (hw_info.sm_count). Without programmatic dependent launch. The state
/// (window, epochs, monitor) is that of a RowExchange, and so are order and errors: a wait that fails leaves its record
/// with the monitor.
template <class Stock, class ContributingEpilogue, int packsPerLane>
class RowExchangeKernel : public detail::OrderedKernel<Stock, ContributingEpilogue> {
  using Exchange = detail::EpilogueExchange<ContributingEpilogue>;
  using Result = typename Exchange::Result;

 public:
  using Base = detail::OrderedKernel<Stock, ContributingEpilogue>;
  using Epilogue = ContributingEpilogue;
  using Scratch = typename Exchange::Scratch;
  using Tiles = typename Exchange::Tiles;
  using T = typename Scratch::Element;
  using typename Base::Arguments;
  using typename Base::Params;

 private:
  static constexpr int sendQueues = 2;  ///< of a sending block: two send as much as a multiprocessor can
  /// The chunks of their rings, as many as a block has shared memory for; 0: no block can send for others.
  static constexpr int sendChunks() {
    if constexpr (Exchange::sumsTiles) {
      const auto fit = [](auto count) {
        using Queue = typename Epilogue::OutgoingTiles::template SendQueue<decltype(count)::value>;
        return sizeof(Queue[sendQueues]) + alignof(Queue) <= Base::SharedStorageSize;
      };
      if (fit(cute::Int<6>{})) return 6;
      if (fit(cute::Int<4>{})) return 4;
    }
    return 0;
  }

 public:
  /// The scratch for problems of up to `rows` rows and exactly `columns` columns.
  static Scratch scratchFor(std::size_t rows, std::size_t columns) {
    if constexpr (Exchange::sumsTiles) {
      return Epilogue::scratchFor(rows, columns);
    } else {
      constexpr std::size_t longest = std::size_t{packsPerLane} * packSize<T> * 32;
      std::size_t parts = Result::wholeRows ? 1 : ceilDivide(columns, longest);
      // The parts of a row have the same length, in whole packs.
      while (parts < columns && columns % (parts * packSize<T>) != 0) ++parts;
      const std::size_t part = columns / parts;
      return {Tiles::exchangeRows(rows) * parts, part, Result::resultBytes(part),
              static_cast<int>(Tiles::tileRows * parts), Exchange::Ranks};
    }
  }
  /// The rows of the problem that are a rank's output.
  static Range outputRows(std::size_t rows, int rank) { return Tiles::outputRows(rows, rank); }

  /// The struct with `exchange` and `result`, wherever it is among the arguments.
  static auto& exchangeArguments(Arguments& arguments) { return detail::ExchangeArguments::in(arguments.epilogue); }
  static const auto& exchangeArguments(const Arguments& arguments) {
    return detail::ExchangeArguments::in(arguments.epilogue);
  }
  /// Whether a block has the shared memory to send for others, which an epilogue that adds up tiles itself lets it do.
  static constexpr bool canSendForOthers = sendChunks() > 0;
  /// Whether the sending blocks are whole clusters, and others are beside them on the current GPU.
  static bool acceptsSendingBlocks(const Arguments& arguments) {
    return detail::acceptsSendingBlocks<Base>(arguments, canSendForOthers);
  }

  /// As the stock kernel's; also whether the problem fits the scratch, and the exchange the team.
  static bool can_implement(const Arguments& arguments) {
    const auto shape = cute::append<4>(arguments.problem_shape, 1);
    const auto& epilogue = exchangeArguments(arguments);
    return cute::get<3>(shape) == 1 && acceptsSendingBlocks(arguments) &&
           Tiles::accept(static_cast<std::size_t>(cute::get<0>(shape)), static_cast<std::size_t>(cute::get<1>(shape)),
                         epilogue.exchange, epilogue.result) &&
           Base::can_implement(arguments);
  }
  static Params to_underlying_arguments(const Arguments& arguments, void* workspace) {
    Arguments ordered = arguments;
    ordered.scheduler.rank = exchangeArguments(arguments).exchange.team.rank();
    Params params = Base::to_underlying_arguments(ordered, workspace);
    if constexpr (Exchange::sumsTiles) params.epilogue.sendsOwnTiles = arguments.scheduler.sendingBlocks == 0;
    return params;
  }

  /// Of a thread of the consumers once it has computed its last tile; fewer than it has then (232 or 240).
  static constexpr std::uint32_t completionRegisters = 224;

  CUTLASS_DEVICE void operator()(const Params& params, char* shared) {
    if constexpr (Exchange::sumsTiles) {
      if constexpr (canSendForOthers) {
        if (typename Base::TileScheduler{params.scheduler}.isSending()) return runSendingBlock(params, shared);
      }
      const auto block = gpu::Grid().block();
      if (block.rank() == 0) Epilogue::initShared(params.epilogue, tensorsOf(shared));
      block.sync();
    }
    Base::operator()(params, shared);
    if constexpr (Exchange::sumsTiles) {
      // CUTLASS has nothing to do for the second and the fourth warp of the producers.
      const int warp = cutlass::canonical_warp_idx_sync();
      if ((warp == 1 || warp == 3) && params.epilogue.sendsOwnTiles) return sendOwnTiles(params, shared, warp / 2);
    }
    const gpu::WarpGrid grid = detail::consumerGrid();
    if (!grid.isMember()) return;
    // The producers have given registers away. Without this the compiler gives the code below no more than they kept.
    cutlass::arch::warpgroup_reg_dealloc<completionRegisters>();
    complete<true>(params, grid);
  }

 private:
  static_assert(!Exchange::sumsTiles || Base::SharedStorageSize <= detail::largestSharedBytes,
                "leave shared memory to the exchange: exchangeSharedBytes as the last argument of StockGemm, or "
                "StageCountAutoCarveout<sizeof(...) + exchangeSharedBytes>");
  static_assert(!Exchange::sumsTiles || !Base::IsMainloopAuxiliaryLoadNeeded,
                "the main loop needs the warp that sends tiles: take EvtRowExchange");

  CUTLASS_DEVICE static int columnsOf(const Params& params) {
    return static_cast<int>(cute::get<1>(params.problem_shape));
  }
  CUTLASS_DEVICE static typename Epilogue::TensorStorage& tensorsOf(char* shared) {
    return reinterpret_cast<typename Base::SharedStorage*>(shared)->tensors.epilogue;
  }
  /// By a warp that sends what its block computes.
  CUTLASS_DEVICE static void sendOwnTiles(const Params& params, char* shared, int sender) {
    const auto& queue = tensorsOf(shared).thread.queue;
    const auto& epilogue = params.epilogue;
    const typename Epilogue::OutgoingTiles tiles(epilogue.exchange, epilogue.result,
                                                 {epilogue.exchange, queue.epoch(), queue.hasStopped()});
    tiles.template sendOwn<typename Base::TiledMma>(typename Base::TileScheduler{params.scheduler}, columnsOf(params),
                                                    queue, sender);
  }
  /// Of a block that computes no tiles: its shared memory has queues of tiles, with three warps each.
  CUTLASS_DEVICE static void runSendingBlock(const Params& params, char* shared) {
    using Queue = typename Epilogue::OutgoingTiles::template SendQueue<sendChunks()>;
    const auto address = reinterpret_cast<std::uintptr_t>(shared);
    auto* const queues = reinterpret_cast<Queue*>(roundUp(address, std::uintptr_t{alignof(Queue)}));
    const gpu::WarpGrid consumers = detail::consumerGrid();
    const auto block = gpu::Grid().block();
    const auto& epilogue = params.epilogue;
    const typename Epilogue::OutgoingTiles tiles(epilogue.exchange, epilogue.result,
                                                 makeRowContribution(consumers, epilogue.exchange));
    if (block.rank() < sendQueues) queues[block.rank()].init();
    block.sync();
    const int warp = cutlass::canonical_warp_idx_sync();
    if (warp < sendQueues * Queue::steps) {
      const typename Base::TileScheduler scheduler{params.scheduler};
      const int queue = warp % sendQueues;
      tiles.sendOfOthers(scheduler, columnsOf(params), epilogue.sumLoads, queues[queue],
                         scheduler.cluster() * sendQueues + static_cast<std::uint32_t>(queue),
                         scheduler.clusters() * sendQueues, static_cast<detail::SendStep>(warp / sendQueues));
    }
    if (consumers.isMember()) complete<false>(params, consumers);
  }
  /// computes: whether this block has computed tiles. The others only have an end in common with it.
  template <bool computes>
  CUTLASS_DEVICE static void complete(const Params& params, const gpu::WarpGrid& grid) {
    const auto& epilogue = detail::ExchangeArguments::in(params.epilogue);
    const auto& args = epilogue.exchange;
    auto wait = args.wait;
    NoTrace trace;
    if constexpr (Exchange::sumsTiles) {
      auto exchange = makeRowExchange(grid, args, Tiles::exchangeRows(args.count), wait, trace, Sum{});
      if constexpr (computes && Epilogue::sharesSums) {
        Epilogue::collect(params.epilogue, grid, exchange, typename Base::TileScheduler{params.scheduler},
                          params.problem_shape);
      }
      exchange.finish();
    } else {
      reduce(params, grid, wait, trace);
    }
  }
  CUTLASS_DEVICE static void reduce(const Params& params, const gpu::WarpGrid& grid, auto& wait, auto& trace) {
    const auto& epilogue = detail::ExchangeArguments::in(params.epilogue);
    const auto& args = epilogue.exchange;
    const Result& result = epilogue.result;
    const auto parts = static_cast<std::uint32_t>(Tiles::partsOf(args.scratch));
    const auto place = [&](std::size_t row) {
      // Divisions of 32 bits: those of 64 are slow on a GPU.
      const auto index = static_cast<std::uint32_t>(row);
      std::size_t whole = index / parts;
      if constexpr (Scratch::delivery == RowDelivery::ToOwner) {
        constexpr std::size_t tileRows = Tiles::tileRows;
        whole = Scratch::Owners::index(whole / tileRows, Exchange::Ranks) * tileRows + whole % tileRows;
      }
      return RowPart{whole, index % parts * args.scratch.columns};
    };
    // The rows of a tile beyond the edge of the problem are no rows of the output.
    const std::size_t rows = Tiles::outputRows(args.count, args.team.rank()).size();
    const auto transform = [&](const auto& warp, std::size_t row, auto& packs, const auto& deliver) {
      const RowPart part = place(row);
      if (part.row < rows) result.transform(warp, part, packs, deliver);
    };
    const auto store = [&](std::size_t row, std::size_t byte, const Word128& word) {
      result.store(place(row), byte, word);
    };
    auto exchange = makeRowExchange(grid, args, Tiles::exchangeRows(args.count) * parts, wait, trace, Sum{});
    const std::uint32_t tiles = Tiles::columnTilesOf(columnsOf(params));
    if (exchange.template reduce<packsPerLane>(tiles, transform, store)) exchange.collect(store);
    exchange.finish();
  }
};

}  // namespace mscclpp
