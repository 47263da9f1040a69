// Kernels of CUTLASS in bfloat16 with an all-reduce: a pingpong kernel in two hops, straight from its shared memory,
// one with small tiles in one hop, for few rows, and a cooperative one.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using cutlass::bfloat16_t;
constexpr int ranks = 2;
constexpr CutlassTile smallTile{.rows = 64,
                                .columns = 64,
                                .depth = 64,
                                .clusterRows = 1,
                                .clusterColumns = 1,
                                .schedule = CutlassSchedule::Pingpong};
constexpr CutlassTile narrowTile = cutlassTiles[3];

template <CutlassTile tile, RowDelivery delivery>
using Fused = GemmRowExchange<typename StockGemm<tile, bfloat16_t, bfloat16_t>::Type, ranks, delivery>;

const auto alphaOne = [](auto& thread, const float*, const float*) { thread.alpha = 1.0f; };

template <CutlassTile tile, RowDelivery delivery>
void check(const std::vector<GemmShape>& shapes) {
  checkGemm<Fused<tile, delivery>, ranks>(shapes, false, alphaOne);
}

}  // namespace

TEST_CASE("CUTLASS: GEMM and all-reduce, whole tiles and edges") {
  check<cutlassTiles[2], RowDelivery::ToAll>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}});
}
TEST_CASE("CUTLASS: GEMM and all-reduce, columns that are no multiple of a tile, many tiles for each block") {
  check<cutlassTiles[2], RowDelivery::ToAll>({{1500, 904, 192}, {129, 904, 512}});
}
TEST_CASE("CUTLASS: GEMM and all-reduce, random shapes") {
  checkRandomGemms<Fused<cutlassTiles[2], RowDelivery::ToAll>, ranks>(1, alphaOne);
}
TEST_CASE("CUTLASS: GEMM and all-reduce in one hop") {
  check<smallTile, RowDelivery::Redundant>({{16, 1000, 256}, {1, 1000, 512}, {200, 1000, 72}});
}
TEST_CASE("CUTLASS: a cooperative GEMM and all-reduce in one hop, random shapes") {
  checkRandomGemms<Fused<narrowTile, RowDelivery::Redundant>, ranks>(2, alphaOne);
}
