// A GEMM kernel of CUTLASS fused with a reduce-scatter or an all-reduce of its output: a row exchange.
#pragma once

#include "mscclpp/fusion/cutlass/contributing_epilogue.cuh"
#include "mscclpp/fusion/cutlass/element_of.cuh"
#include "mscclpp/fusion/cutlass/row_exchange_kernel.cuh"
#include "mscclpp/fusion/cutlass/summing_epilogue.cuh"
#include "mscclpp/fusion/cutlass/tile_scratch.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {
template <class Stock>
using OutputOf = typename ElementOf<typename Stock::ElementD>::Type;

/// The epilogue that contributes the tiles of Stock: one that adds them up itself where every element is stored as it
/// is, and else one that leaves the reduction of whole rows to the kernel.
template <class Stock, int Ranks, RowDelivery delivery, class Result>
struct ExchangeEpilogue {
  using Type =
      ContributingEpilogue<typename Stock::CollectiveEpilogue, Ranks, RowScratch<OutputOf<Stock>, delivery>, Result>;
};
template <class Stock, int Ranks, RowDelivery delivery>
requires(delivery !=
         RowDelivery::Redundant) struct ExchangeEpilogue<Stock, Ranks, delivery, StoreRows<OutputOf<Stock>>> {
  using Type = SummingEpilogue<typename Stock::CollectiveEpilogue, Ranks, TileScratch<OutputOf<Stock>, delivery>>;
};
}  // namespace detail

/// The GemmUniversal kernel `Stock` whose output is summed over the ranks as it is computed: a RowExchangeKernel. It
/// takes the arguments of Stock, but that those of the epilogue have `exchange` and `result` in place of C and D
/// (SummingEpilogue or, where whole rows are transformed or delivered redundantly, ContributingEpilogue).
///
/// Result: what becomes of the reduced rows (fusion/gemm/row_result.hpp), such as StoreRows or NormRows.
///
/// Stock leaves 16 KiB of shared memory to a SummingEpilogue: the tiles of cutlassTiles do, but that of 192 columns
/// with `reservedBytes` of StockGemm only. The sources of the idea are Flux (arXiv 2406.06858) and the epilogue
/// visitors of CUTLASS.
template <class Stock, int Ranks, RowDelivery delivery, class Result = StoreRows<detail::OutputOf<Stock>>,
          int packsPerLane = 4>
using GemmRowExchange =
    RowExchangeKernel<Stock, typename detail::ExchangeEpilogue<Stock, Ranks, delivery, Result>::Type, packsPerLane>;

}  // namespace mscclpp
