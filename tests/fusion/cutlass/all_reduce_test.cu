// A pingpong kernel of CUTLASS in bfloat16 with an all-reduce in two hops, straight from its shared memory.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

using cutlass::bfloat16_t;
using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;
using TileShape = cute::Shape<cute::_128, cute::_128, cute::_64>;
using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;
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
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::ToAll>;

const auto alphaOne = [](auto& thread, const float*, const float*) { thread.alpha = 1.0f; };

}  // namespace

TEST_CASE("CUTLASS: GEMM and all-reduce, whole tiles and edges") {
  checkGemm<Fused, ranks>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}}, false, alphaOne);
}

TEST_CASE("CUTLASS: GEMM and all-reduce, columns that are no multiple of a tile, many tiles for each block") {
  checkGemm<Fused, ranks>({{1500, 904, 192}, {129, 904, 512}}, false, alphaOne);
}
