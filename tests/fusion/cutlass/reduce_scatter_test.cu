// A cooperative kernel of CUTLASS in fp8 with scales of rows and columns, and a reduce-scatter of its rows.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

namespace fusion = cutlass::epilogue::fusion;
using cutlass::bfloat16_t;
using cutlass::float_e4m3_t;
using TileShape = cute::Shape<cute::_128, cute::_128, cute::_128>;
constexpr auto nearest = cutlass::FloatRoundStyle::round_to_nearest;

// columnScale * (rowScale * accumulator)
using RowScales = fusion::Sm90ColBroadcast<0, TileShape, float>;
using ColumnScales = fusion::Sm90RowBroadcast<0, TileShape, float>;
using Scaled =
    fusion::Sm90EVT<fusion::Sm90Compute<cutlass::multiplies, float, float, nearest>, RowScales, fusion::Sm90AccFetch>;
using Scales =
    fusion::Sm90EVT<fusion::Sm90Compute<cutlass::multiplies, bfloat16_t, float, nearest>, ColumnScales, Scaled>;

constexpr CutlassTile tile{.rows = 128,
                           .columns = 128,
                           .depth = 128,
                           .clusterRows = 1,
                           .clusterColumns = 2,
                           .schedule = CutlassSchedule::Cooperative};
using Stock = StockGemm<tile, float_e4m3_t, bfloat16_t, Scales>::Type;

constexpr int ranks = 2;
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::ToOwner>;

}  // namespace

TEST_CASE("CUTLASS: GEMM in fp8 with scales of rows and columns, and reduce-scatter") {
  checkGemm<Fused, ranks>({{384, 648, 256}, {500, 648, 144}, {3, 648, 16}}, true,
                          [](auto& thread, const float* rowScales, const float* columnScales) {
                            thread.op_0.ptr_row = columnScales;
                            thread.op_1.op_0.ptr_col = rowScales;
                          });
}
