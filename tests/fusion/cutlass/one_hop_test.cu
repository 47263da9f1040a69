// A pingpong kernel of CUTLASS with small tiles and an all-reduce in one hop, for few rows.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using cutlass::bfloat16_t;
using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;
using TileShape = cute::Shape<cute::_64, cute::_64, cute::_64>;
using ClusterShape = cute::Shape<cute::_1, cute::_1, cute::_1>;
using Epilogue =
    cutlass::epilogue::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape,
                                                     ClusterShape, cutlass::epilogue::collective::EpilogueTileAuto,
                                                     float, float, void, RowMajor, 8, bfloat16_t, RowMajor, 8,
                                                     cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, bfloat16_t, RowMajor, 8, bfloat16_t, ColumnMajor, 8, float,
    TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
using Stock = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;

constexpr int ranks = 2;
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::Redundant>;

}  // namespace

TEST_CASE("CUTLASS: GEMM and all-reduce in one hop") {
  checkGemm<Fused, ranks>({{16, 1000, 256}, {1, 1000, 512}, {200, 1000, 72}}, false,
                          [](auto& thread, const float*, const float*) { thread.alpha = 1.0f; });
}
