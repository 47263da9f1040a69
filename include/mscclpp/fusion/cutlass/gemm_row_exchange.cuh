// A GEMM kernel of CUTLASS fused with a reduce-scatter or an all-reduce of its output: a row exchange.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/row_exchange.hpp"
#include "mscclpp/fusion/cutlass/contributing_epilogue.cuh"
#include "mscclpp/fusion/cutlass/tile_order.cuh"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {

/// The library's type for an element type of CUTLASS.
template <class T>
struct ElementOf {
  using Type = T;
};
template <>
struct ElementOf<cutlass::bfloat16_t> {
  using Type = bf16;
};
template <>
struct ElementOf<cutlass::half_t> {
  using Type = f16;
};
template <class Stock>
using OutputOf = typename ElementOf<typename Stock::ElementD>::Type;

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

template <class Stock, int Ranks, RowDelivery delivery, class Result>
struct RowExchangeKernel {
  using Scratch = RowScratch<OutputOf<Stock>, delivery>;
  using Epilogue = ContributingEpilogue<typename Stock::CollectiveEpilogue, Ranks, Scratch, Result>;
  using Type = typename WithEpilogue<Stock, Epilogue,
                                     OrderedTiles<RemoteRowsFirst<delivery, typename Scratch::Owners, Ranks>>>::Type;
};

}  // namespace detail

/// The GemmUniversal kernel `Stock` (Sm90, KernelTmaWarpSpecializedPingpong or -Cooperative) whose output is summed
/// over the ranks as it is computed. It takes the arguments of Stock, but that those of the epilogue are
/// ContributingEpilogue's: `exchange` and `result` in place of C and D. Each tile goes to the rank that reduces its
/// rows, tiles of other ranks' rows first. A rank adds up the tiles of its own rows in registers, as it computes them;
/// a Result that needs whole rows is reduced from memory by the consumer warps of each block of threads when it has
/// computed its last tile, and so are results of other ranks stored.
///
/// Result: what becomes of the reduced rows (fusion/gemm/row_result.hpp), such as StoreRows or NormRows. With
/// RowDelivery::ToOwner the output of a rank consists of outputRows(): consecutive rows, of as many tiles on all ranks,
/// or one less on the last ones. packsPerLane: registers for a row, 256 elements of 16 bits each; a Result that needs
/// whole rows needs so many that a row fits.
///
/// Launch it as any kernel of CUTLASS 3 (GemmUniversalAdapter), on all ranks, with at most as many blocks as are
/// resident at once, which is CUTLASS's own rule (hw_info.sm_count). Without programmatic dependent launch. The state
/// (window, epochs, monitor) is that of a RowExchange, and so are order and errors: a wait that fails leaves its record
/// with the monitor.
///
/// The sources of the idea are Flux (arXiv 2406.06858) and the epilogue visitors of CUTLASS.
template <class Stock, int Ranks, RowDelivery delivery, class Result = StoreRows<detail::OutputOf<Stock>>,
          int packsPerLane = 4>
class GemmRowExchange : public detail::RowExchangeKernel<Stock, Ranks, delivery, Result>::Type {
 public:
  using T = detail::OutputOf<Stock>;
  using Scratch = RowScratch<T, delivery>;
  using Epilogue = ContributingEpilogue<typename Stock::CollectiveEpilogue, Ranks, Scratch, Result>;
  using Base = typename detail::RowExchangeKernel<Stock, Ranks, delivery, Result>::Type;
  using typename Base::Arguments;
  using typename Base::Params;

  /// The scratch for problems of up to `rows` rows and exactly `columns` columns.
  static Scratch scratchFor(std::size_t rows, std::size_t columns) {
    constexpr std::size_t longest = std::size_t{packsPerLane} * packSize<T> * 32;
    // Tiles that are summed up are not reduced row by row.
    std::size_t parts = Result::wholeRows || Epilogue::sumsTiles ? 1 : ceilDivide(columns, longest);
    // The parts of a row have the same length, in whole packs.
    while (parts < columns && columns % (parts * packSize<T>) != 0) ++parts;
    const std::size_t part = columns / parts;
    return {Epilogue::exchangeRows(rows) * parts, part, Result::resultBytes(part),
            static_cast<int>(Epilogue::tileRows * parts), Ranks};
  }
  /// The rows of the problem that are a rank's output.
  static Range outputRows(std::size_t rows, int rank) { return Epilogue::outputRows(rows, rank); }

  static Params to_underlying_arguments(const Arguments& arguments, void* workspace) {
    Arguments ordered = arguments;
    ordered.scheduler.rank = arguments.epilogue.exchange.team.rank();
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
    const Result& result = params.epilogue.result;
    const auto parts = static_cast<std::uint32_t>(Epilogue::partsOf(args.scratch));
    const auto place = [&](std::size_t row) {
      // Divisions of 32 bits: those of 64 are slow on a GPU.
      const auto index = static_cast<std::uint32_t>(row);
      std::size_t whole = index / parts;
      if constexpr (delivery == RowDelivery::ToOwner) {
        constexpr std::size_t tileRows = Epilogue::tileRows;
        whole = Scratch::Owners::index(whole / tileRows, Ranks) * tileRows + whole % tileRows;
      }
      return RowPart{whole, index % parts * args.scratch.columns};
    };
    // The rows of a tile beyond the edge of the problem are no rows of the output.
    const std::size_t rows = Epilogue::outputRows(args.count, args.team.rank()).size();
    const auto transform = [&](const auto& warp, std::size_t row, auto& packs, const auto& deliver) {
      const RowPart part = place(row);
      if (part.row < rows) result.transform(warp, part, packs, deliver);
    };
    const auto store = [&](std::size_t row, std::size_t byte, const Word128& word) {
      result.store(place(row), byte, word);
    };
    auto wait = args.wait;
    NoTrace trace;
    auto exchange = makeRowExchange(grid, args, Epilogue::exchangeRows(args.count) * parts, wait, trace, Sum{});
    constexpr int tileColumns = Epilogue::tileColumns;
    const auto tiles = static_cast<std::uint32_t>((cute::get<1>(params.problem_shape) + tileColumns - 1) / tileColumns);
    if constexpr (Epilogue::sumsTiles) {
      exchange.collect(tiles, store);
    } else if (exchange.template reduce<packsPerLane>(tiles, transform, store)) {
      exchange.collect(store);
    }
    exchange.finish();
  }
};

}  // namespace mscclpp
