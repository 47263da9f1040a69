// A GEMM kernel of CUTLASS whose visitor tree contributes its tiles to a reduce-scatter or an all-reduce.
#pragma once

#include "mscclpp/fusion/cutlass/contribute_tiles.cuh"
#include "mscclpp/fusion/cutlass/row_exchange_kernel.cuh"

namespace mscclpp {

/// The GemmUniversal kernel `Stock`, in whose visitor tree is a node ContributeTiles, with what the node stores summed
/// over the ranks: a RowExchangeKernel. It takes the arguments of Stock. Ranks, delivery and result are the node's.
template <class Stock, int packsPerLane = 4>
using EvtRowExchange = RowExchangeKernel<Stock, typename Stock::CollectiveEpilogue, packsPerLane>;

}  // namespace mscclpp
