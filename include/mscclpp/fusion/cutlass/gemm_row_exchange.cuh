// A GEMM kernel of CUTLASS fused with a reduce-scatter or an all-reduce of its output: a row exchange.
#pragma once

#include "mscclpp/fusion/cutlass/contributing_epilogue.cuh"
#include "mscclpp/fusion/cutlass/element_of.cuh"
#include "mscclpp/fusion/cutlass/row_exchange_kernel.cuh"
#include "mscclpp/fusion/gemm/row_result.hpp"

namespace mscclpp {

namespace detail {
template <class Stock>
using OutputOf = typename ElementOf<typename Stock::ElementD>::Type;
}  // namespace detail

/// The GemmUniversal kernel `Stock` whose output is summed over the ranks as it is computed: a RowExchangeKernel. It
/// takes the arguments of Stock, but that those of the epilogue are ContributingEpilogue's: `exchange` and `result` in
/// place of C and D. Tiles go from shared memory, by TMA, to the rank that reduces their rows; that rank adds up its own
/// tiles in registers, as it computes them. With a Result that needs whole rows it reduces them after the last tile.
///
/// Result: what becomes of the reduced rows (fusion/gemm/row_result.hpp), such as StoreRows or NormRows.
///
/// The sources of the idea are Flux (arXiv 2406.06858) and the epilogue visitors of CUTLASS.
template <class Stock, int Ranks, RowDelivery delivery, class Result = StoreRows<detail::OutputOf<Stock>>,
          int packsPerLane = 4>
using GemmRowExchange = RowExchangeKernel<Stock,
                                          ContributingEpilogue<typename Stock::CollectiveEpilogue, Ranks,
                                                               RowScratch<detail::OutputOf<Stock>, delivery>, Result>,
                                          packsPerLane>;

}  // namespace mscclpp
