// A cooperative kernel of CUTLASS in fp8 with scales of rows and columns, and a reduce-scatter of its rows.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using Stock =
    StockGemm<fp8Tile, cutlass::float_e4m3_t, cutlass::bfloat16_t, ScaleTree<cutlass::bfloat16_t>::Type>::Type;

template <int ranks>
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::ToOwner>;

}  // namespace

TEST_CASE("CUTLASS: GEMM in fp8 with scales of rows and columns, and reduce-scatter") {
  checkGemm<Fused<2>, 2>({{384, 648, 256}, {500, 648, 144}, {3, 648, 16}}, true, setScales);
}

TEST_CASE("CUTLASS: contributions of several other ranks, the first loaded by TMA, the rest by the threads") {
  checkGemm<Fused<4>, 4>({{1152, 648, 256}, {900, 648, 144}, {200, 648, 16}}, true, setScales);
}

TEST_CASE("CUTLASS: blocks that send contributions end without a peer") {
  checkGemm<Fused<2>, 2>({{384, 648, 256}}, true, setScales, {.sendingBlocks = 2, .lacksRank = true});
}
TEST_CASE("CUTLASS: blocks that compute nothing send the contributions of the others") {
  // Clusters of two blocks side by side.
  checkGemm<Fused<2>, 2>({{384, 648, 256}, {500, 648, 144}, {3, 648, 16}, {1000, 648, 16}}, true, setScales,
                         {.sendingBlocks = 2});
  checkGemm<Fused<4>, 4>({{1152, 648, 256}, {900, 648, 144}, {200, 648, 16}}, true, setScales, {.sendingBlocks = 4});
}
