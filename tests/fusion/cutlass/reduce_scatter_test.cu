// A cooperative kernel of CUTLASS in fp8 with scales of rows and columns, and a reduce-scatter of its rows.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

namespace fusion = cutlass::epilogue::fusion;
using cutlass::bfloat16_t;
using cutlass::float_e4m3_t;
using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;
using TileShape = cute::Shape<cute::_128, cute::_128, cute::_128>;
using ClusterShape = cute::Shape<cute::_1, cute::_2, cute::_1>;
constexpr auto nearest = cutlass::FloatRoundStyle::round_to_nearest;

// columnScale * (rowScale * accumulator)
using RowScales = fusion::Sm90ColBroadcast<0, TileShape, float>;
using ColumnScales = fusion::Sm90RowBroadcast<0, TileShape, float>;
using Scaled =
    fusion::Sm90EVT<fusion::Sm90Compute<cutlass::multiplies, float, float, nearest>, RowScales, fusion::Sm90AccFetch>;
using Scales =
    fusion::Sm90EVT<fusion::Sm90Compute<cutlass::multiplies, bfloat16_t, float, nearest>, ColumnScales, Scaled>;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor, 8, bfloat16_t, RowMajor, 8,
    cutlass::epilogue::TmaWarpSpecializedCooperative, Scales>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, float_e4m3_t, RowMajor, 16, float_e4m3_t, ColumnMajor, 16,
    float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Stock = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;

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
