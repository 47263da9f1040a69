// Kernels of CUTLASS whose visitor trees contribute to a reduce-scatter from registers: a cooperative one in fp8 with
// scales of rows and columns, and a pingpong kernel in float16 whose tiles are no multiple of 32 columns.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

namespace fusion = cutlass::epilogue::fusion;
constexpr int ranks = 2;

using Contribution = ContributeTiles<cutlass::bfloat16_t, ranks, RowDelivery::ToOwner>;
using Fp8 = EvtRowExchange<
    StockGemm<fp8Tile, cutlass::float_e4m3_t, void, fusion::Sm90EVT<Contribution, ScaleTree<float>::Type>>::Type>;

constexpr CutlassTile narrowTile{.rows = 64,
                                 .columns = 48,
                                 .depth = 64,
                                 .clusterRows = 2,
                                 .clusterColumns = 1,
                                 .schedule = CutlassSchedule::Pingpong};
using NarrowContribution = ContributeTiles<cutlass::half_t, ranks, RowDelivery::ToOwner>;
using Narrow = EvtRowExchange<
    StockGemm<narrowTile, cutlass::half_t, void, fusion::Sm90EVT<NarrowContribution, fusion::Sm90AccFetch>>::Type>;

const auto noScales = [](auto&, const float*, const float*) {};

}  // namespace

TEST_CASE("CUTLASS: a visitor tree in fp8 with scales of rows and columns, and reduce-scatter") {
  checkGemm<Fp8, ranks>({{384, 648, 256}, {500, 648, 144}, {3, 648, 16}}, true,
                        [](auto& thread, const float* rowScales, const float* columnScales) {
                          setScales(thread.op_0, rowScales, columnScales);
                        });
}
TEST_CASE("CUTLASS: a visitor tree with narrow tiles, and reduce-scatter") {
  checkGemm<Narrow, ranks>({{1000, 664, 128}, {64, 664, 72}, {65, 664, 200}}, false, noScales);
}
TEST_CASE("CUTLASS: a visitor tree with narrow tiles, and reduce-scatter, random shapes") {
  checkRandomGemms<Narrow, ranks>(5, noScales);
}
