// A cooperative kernel of CUTLASS in fp8 with scales of rows and columns, and a reduce-scatter of its rows.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using Stock =
    StockGemm<fp8Tile, cutlass::float_e4m3_t, cutlass::bfloat16_t, ScaleTree<cutlass::bfloat16_t>::Type>::Type;

constexpr int ranks = 2;
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::ToOwner>;

}  // namespace

TEST_CASE("CUTLASS: GEMM in fp8 with scales of rows and columns, and reduce-scatter") {
  checkGemm<Fused, ranks>({{384, 648, 256}, {500, 648, 144}, {3, 648, 16}}, true, setScales);
}
