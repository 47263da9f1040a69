// A cooperative kernel of CUTLASS in fp8 with scales of rows and columns, and a reduce-scatter of its rows.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using Stock =
    StockGemm<fp8Tile, cutlass::float_e4m3_t, cutlass::bfloat16_t, ScaleTree<cutlass::bfloat16_t>::Type>::Type;

template <int ranks>
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::ToOwner>;

constexpr CutlassTile wideTile = cutlassTiles[8];
static_assert(wideTile.operandBytes == 1 && wideTile.columns == 256);
using WideScales = ScaledProduct<wideTile, cutlass::bfloat16_t>;
using WideStock =
    StockGemm<wideTile, cutlass::float_e4m3_t, cutlass::bfloat16_t, WideScales::Type, exchangeSharedBytes>::Type;

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
TEST_CASE("CUTLASS: GEMM in fp8 with wide tiles, scales of rows and columns, and reduce-scatter") {
  const auto setWideScales = [](auto& tree, const float* ofRows, const float* ofColumns) {
    WideScales::setScales(tree, ofRows, ofColumns);
  };
  using Wide = GemmRowExchange<WideStock, 2, RowDelivery::ToOwner>;
  checkGemm<Wide, 2>({{512, 648, 656}, {500, 648, 144}, {3, 648, 16}, {1000, 648, 400}}, true, setWideScales,
                     {.sendingBlocks = 2});
}
