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
constexpr CutlassTile pingpongTile = cutlassTiles[2];
constexpr CutlassTile narrowTile = cutlassTiles[3];

template <CutlassTile tile, RowDelivery delivery>
using Fused = GemmRowExchange<typename StockGemm<tile, bfloat16_t, bfloat16_t>::Type, ranks, delivery>;

const auto alphaOne = [](auto& thread, const float*, const float*) { thread.alpha = 1.0f; };

template <CutlassTile tile, RowDelivery delivery>
void check(const std::vector<GemmShape>& shapes, int sendingBlocks = 0) {
  checkGemm<Fused<tile, delivery>, ranks>(shapes, false, alphaOne, sendingBlocks);
}

}  // namespace

TEST_CASE("CUTLASS: GEMM and all-reduce, whole tiles and edges") {
  check<pingpongTile, RowDelivery::ToAll>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}});
}
TEST_CASE("CUTLASS: GEMM and all-reduce, columns that are no multiple of a tile, many tiles for each block") {
  check<pingpongTile, RowDelivery::ToAll>({{1500, 904, 192}, {129, 904, 512}});
}
TEST_CASE("CUTLASS: GEMM and all-reduce, random shapes") {
  checkRandomGemms<Fused<pingpongTile, RowDelivery::ToAll>, ranks>(1, alphaOne);
}
TEST_CASE("CUTLASS: blocks that compute nothing send contributions and sums of the others") {
  check<pingpongTile, RowDelivery::ToAll>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}}, 2);
  check<pingpongTile, RowDelivery::ToAll>({{1500, 904, 192}, {129, 904, 512}, {1, 904, 64}}, 8);
  check<pingpongTile, RowDelivery::ToAll>({{300, 128, 64}, {20, 128, 64}, {129, 128, 64}}, 4);  // rows without gaps
  checkRandomGemms<Fused<pingpongTile, RowDelivery::ToAll>, ranks>(3, alphaOne, 4);
}
TEST_CASE("CUTLASS: blocks that compute nothing are whole clusters, beside others, of a kernel that adds up tiles") {
  using Sums = Fused<pingpongTile, RowDelivery::ToAll>;
  for (const int sending : {0, 2, 30}) CHECK(acceptsSendingBlocks<Sums>(sending, 32));
  for (const int sending : {-2, 3, 32, 34}) CHECK_FALSE(acceptsSendingBlocks<Sums>(sending, 32));
  CHECK(acceptsSendingBlocks<Sums>(64));
  using OneHop = Fused<smallTile, RowDelivery::Redundant>;
  CHECK(acceptsSendingBlocks<OneHop>(0));
  CHECK_FALSE(acceptsSendingBlocks<OneHop>(1));
}
TEST_CASE("CUTLASS: GEMM and all-reduce in one hop") {
  check<smallTile, RowDelivery::Redundant>({{16, 1000, 256}, {1, 1000, 512}, {200, 1000, 72}});
}
TEST_CASE("CUTLASS: a cooperative GEMM and all-reduce in one hop, random shapes") {
  checkRandomGemms<Fused<narrowTile, RowDelivery::Redundant>, ranks>(2, alphaOne);
}
