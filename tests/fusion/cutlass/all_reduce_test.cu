// Kernels of CUTLASS in bfloat16 with an all-reduce: a pingpong kernel in two hops, straight from its shared memory,
// one with small tiles in one hop, for few rows, and a cooperative one.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using cutlass::bfloat16_t;
constexpr CutlassTile smallTile{.rows = 64,
                                .columns = 64,
                                .depth = 64,
                                .clusterRows = 1,
                                .clusterColumns = 1,
                                .schedule = CutlassSchedule::Pingpong};
constexpr CutlassTile wideTile = cutlassTiles[0];
constexpr CutlassTile pingpongTile = cutlassTiles[2];
constexpr CutlassTile narrowTile = cutlassTiles[3];

template <CutlassTile tile, RowDelivery delivery, int ranks = 2>
using Fused = GemmRowExchange<typename StockGemm<tile, bfloat16_t, bfloat16_t>::Type, ranks, delivery>;

const auto alphaOne = [](auto& thread, const float*, const float*) { thread.alpha = 1.0f; };

template <CutlassTile tile, RowDelivery delivery, int ranks = 2>
void check(const std::vector<GemmShape>& shapes, const GemmSchedule& schedule = {}) {
  checkGemm<Fused<tile, delivery, ranks>, ranks>(shapes, false, alphaOne, schedule);
}

}  // namespace

TEST_CASE("CUTLASS: GEMM and all-reduce, whole tiles and edges") {
  check<pingpongTile, RowDelivery::ToAll>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}});
}
TEST_CASE("CUTLASS: GEMM and all-reduce, columns that are no multiple of a tile, many tiles for each block") {
  check<pingpongTile, RowDelivery::ToAll>({{1500, 904, 192}, {129, 904, 512}});
}
TEST_CASE("CUTLASS: GEMM and all-reduce, random shapes") {
  checkRandomGemms<Fused<pingpongTile, RowDelivery::ToAll>, 2>(1, alphaOne);
}
TEST_CASE("CUTLASS: blocks that compute nothing send contributions and sums of the others") {
  const GemmSchedule few{.sendingBlocks = 2};
  check<pingpongTile, RowDelivery::ToAll>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}}, few);
  check<pingpongTile, RowDelivery::ToAll>({{1500, 904, 192}, {129, 904, 512}, {1, 904, 64}}, {.sendingBlocks = 8});
  // Rows without gaps.
  check<pingpongTile, RowDelivery::ToAll>({{300, 128, 64}, {20, 128, 64}, {129, 128, 64}}, {.sendingBlocks = 4});
  check<pingpongTile, RowDelivery::ToAll>({{1500, 904, 64}, {400, 904, 64}},
                                          {.sendingBlocks = 4, .isAlongM = true, .swizzle = 2});
  checkRandomGemms<Fused<pingpongTile, RowDelivery::ToAll>, 2>(3, alphaOne, {.sendingBlocks = 4});
}
TEST_CASE("CUTLASS: ranks may differ in their sending blocks, and outputs have rows with gaps") {
  check<pingpongTile, RowDelivery::ToAll>({{700, 904, 72}, {129, 904, 64}},
                                          {.sendingBlocks = 4, .sendingRanks = 1, .gap = 40});
  check<pingpongTile, RowDelivery::ToAll, 3>({{1100, 904, 64}, {200, 904, 72}, {1, 904, 64}},
                                             {.sendingBlocks = 2, .sendingRanks = 2, .gap = 8});
}
TEST_CASE("CUTLASS: GEMM and all-reduce in two hops, clusters of one block and of columns of tiles") {
  constexpr CutlassTile columnClusters{.rows = 128,
                                       .columns = 128,
                                       .depth = 64,
                                       .clusterRows = 1,
                                       .clusterColumns = 2,
                                       .schedule = CutlassSchedule::Pingpong};
  for (const bool isAlongM : {false, true}) {
    const GemmSchedule schedule{.sendingBlocks = 4, .isAlongM = isAlongM, .swizzle = 2};
    check<smallTile, RowDelivery::ToAll>({{700, 200, 64}, {64, 200, 72}, {1, 200, 64}}, schedule);
    check<columnClusters, RowDelivery::ToAll>({{900, 648, 64}, {128, 648, 72}, {1, 648, 64}}, schedule);
  }
}
TEST_CASE("CUTLASS: queues of blocks that send are used many times over") {
  check<pingpongTile, RowDelivery::ToAll>({{2048, 4096, 16}, {2040, 4096, 8}}, {.sendingBlocks = 2, .swizzle = 4});
  check<wideTile, RowDelivery::ToAll>({{4096, 4096, 8}, {900, 4096, 72}}, {.sendingBlocks = 2, .swizzle = 4});
}
TEST_CASE("CUTLASS: blocks that compute nothing send sums to several ranks") {
  check<pingpongTile, RowDelivery::ToAll, 4>({{1100, 904, 192}, {300, 904, 64}}, {.sendingBlocks = 4});
}
TEST_CASE("CUTLASS: blocks that send contributions and sums end without a peer") {
  check<pingpongTile, RowDelivery::ToAll>({{640, 2048, 72}}, {.sendingBlocks = 2, .lacksRank = true});
}
TEST_CASE("CUTLASS: blocks that compute nothing are whole clusters, beside others, of a kernel that adds up tiles") {
  using Sums = Fused<pingpongTile, RowDelivery::ToAll>;
  for (const int sending : {0, 2, 30}) CHECK(acceptsSendingBlocks<Sums>(sending, 32));
  for (const int sending : {-2, 3, 32, 34}) CHECK_FALSE(acceptsSendingBlocks<Sums>(sending, 32));
  CHECK(acceptsSendingBlocks<Sums>(30));
  CHECK_FALSE(acceptsSendingBlocks<Sums>(1000));
  using OneHop = Fused<smallTile, RowDelivery::Redundant>;
  CHECK(acceptsSendingBlocks<OneHop>(0));
  CHECK_FALSE(acceptsSendingBlocks<OneHop>(1));
}
TEST_CASE("CUTLASS: GEMM and all-reduce in one hop") {
  check<smallTile, RowDelivery::Redundant>({{16, 1000, 256}, {1, 1000, 512}, {200, 1000, 72}});
}
TEST_CASE("CUTLASS: a cooperative GEMM and all-reduce in one hop, random shapes") {
  checkRandomGemms<Fused<narrowTile, RowDelivery::Redundant>, 2>(2, alphaOne);
}
