// A GEMM kernel of CUTLASS fused with a reduce-scatter or an all-reduce of its output: a row exchange.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/row_exchange.hpp"
#include "mscclpp/fusion/cutlass/contributing_epilogue.cuh"
#include "mscclpp/fusion/cutlass/tile_order.cuh"

namespace mscclpp {

/// Completion of a GemmRowExchange that stores the reduced rows, rounded once, into an output of the problem's size;
/// with RowDelivery::ToOwner the rows of other ranks are left alone. A Completion is plain data with these members:
/// `transform` and `store` are called as RowExchange::reduce() calls its transform and sink.
template <class T, int packs = 4>
struct StoreRows {
  static constexpr int packsPerLane = packs;  ///< room for scratch.columns elements: 256 * packs of 16 bits

  T* output;             ///< row-major, aligned to 16 bytes
  std::size_t rowBytes;  ///< of a row of the scratch

  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void transform(const Warp& /*warp*/, std::size_t /*row*/, Packs& packsOfLane,
                                const Output& deliver) const {
    packsOfLane.forEach([&](std::size_t column, const Pack<T>& pack) { deliver(column * sizeof(T), toWord<T>(pack)); });
  }
  MSCCLPP_INLINE void store(std::size_t row, std::size_t byte, const Word128& word) const {
    arch::storeWide(reinterpret_cast<std::byte*>(output) + row * rowBytes + byte, word);
  }
};

/// The scratch of a GemmRowExchange for problems of up to `rows` rows and exactly `columns` columns. tileRows: rows of
/// a tile. parts: into how many rows of the scratch a row is divided; a divisor of columns. A transform that needs
/// whole rows, such as a norm, has parts = 1; others run fastest with about 1024 elements.
template <class Scratch>
Scratch makeGemmRowScratch(std::size_t rows, std::size_t columns, std::size_t tileRows, std::size_t parts, int ranks) {
  const std::size_t partColumns = columns / parts;
  return Scratch{rows * parts, partColumns, partColumns * sizeof(typename Scratch::Element),
                 static_cast<int>(tileRows * parts), ranks};
}

namespace detail {
template <class Stock, class Epilogue, class Tiles>
struct WithEpilogue {
  static_assert(sizeof(Stock) == 0,
                "the kernel must be a cutlass::gemm::kernel::GemmUniversal with its default "
                "(persistent) tile scheduler");
};
template <class Problem, class Mainloop, class StockEpilogue, class Epilogue, class Tiles>
struct WithEpilogue<cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, StockEpilogue, void, void>, Epilogue,
                    Tiles> {
  using Type = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue, Tiles>;
};
}  // namespace detail

/// The GemmUniversal kernel `Stock` (Sm90, KernelTmaWarpSpecializedPingpong or -Cooperative) whose output is summed
/// over the ranks as it is computed. It takes the arguments of Stock, but that those of the epilogue are
/// ContributingEpilogue's: `exchange` and `completion` in place of C and D. Each tile goes to the rank that reduces its
/// rows, tiles of other ranks' rows first. When a block of threads has computed its last tile, its consumer warps
/// reduce rows and complete the call: Completion, a type as StoreRows.
///
/// Launch it as any kernel of CUTLASS 3 (GemmUniversalAdapter), on all ranks, with at most as many blocks as are
/// resident at once, which is CUTLASS's own rule (hw_info.sm_count). Without programmatic dependent launch. The state
/// (window, epochs, monitor) is that of a RowExchange, and so are order and errors: a wait that fails leaves its record
/// with the monitor.
///
/// The sources of the idea are Flux (arXiv 2406.06858) and the epilogue visitors of CUTLASS.
template <class Stock, int Ranks, class Scratch, class Completion = StoreRows<typename Scratch::Element>>
class GemmRowExchange
    : public detail::WithEpilogue<Stock,
                                  ContributingEpilogue<typename Stock::CollectiveEpilogue, Ranks, Scratch, Completion>,
                                  OrderedTiles<RemoteRowsFirst<typename Scratch::Owners>>>::Type {
 public:
  using Epilogue = ContributingEpilogue<typename Stock::CollectiveEpilogue, Ranks, Scratch, Completion>;
  using Base =
      typename detail::WithEpilogue<Stock, Epilogue, OrderedTiles<RemoteRowsFirst<typename Scratch::Owners>>>::Type;
  using typename Base::Arguments;
  using typename Base::Params;

  static Params to_underlying_arguments(const Arguments& arguments, void* workspace) {
    Arguments ordered = arguments;
    ordered.scheduler.rank = arguments.epilogue.exchange.team.rank();
    ordered.scheduler.ranks = Ranks;
    return Base::to_underlying_arguments(ordered, workspace);
  }

  /// Of a thread of the consumers once it has computed its last tile; fewer than it has then (232 or 240).
  static constexpr std::uint32_t completionRegisters = 224;

  CUTLASS_DEVICE void operator()(const Params& params, char* shared) {
    Base::operator()(params, shared);
    const gpu::WarpGrid grid = detail::consumerGrid();
    if (!grid.isMember()) return;
    // The producers have given registers away. Without this the compiler gives the code below no more than they kept.
    cutlass::arch::warpgroup_reg_dealloc<completionRegisters>();
    complete(params, grid);
  }

 private:
  CUTLASS_DEVICE static void complete(const Params& params, const gpu::WarpGrid& grid) {
    const auto& args = params.epilogue.exchange;
    const auto& completion = params.epilogue.completion;
    auto wait = args.wait;
    NoTrace trace;
    auto exchange = makeRowExchange<Sum>(grid, args, wait, trace);
    constexpr int tileColumns = Epilogue::tileColumns;
    const auto parts = static_cast<std::uint32_t>((cute::get<1>(params.problem_shape) + tileColumns - 1) / tileColumns);
    const auto transform = [&](const auto& warp, std::size_t row, auto& packs, const auto& deliver) {
      completion.transform(warp, row, packs, deliver);
    };
    const auto store = [&](std::size_t row, std::size_t byte, const Word128& word) {
      completion.store(row, byte, word);
    };
    if (exchange.template reduce<Completion::packsPerLane>(parts, transform, store)) exchange.collect(store);
    exchange.finish();
  }
};

}  // namespace mscclpp
