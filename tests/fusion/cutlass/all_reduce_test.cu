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
using Scratch = RowScratch<bf16, RowDelivery::ToAll>;

const auto alphaOne = [](auto& thread, const float*, const float*) { thread.alpha = 1.0f; };

}  // namespace

TEST_CASE("CUTLASS: GEMM and all-reduce, whole tiles and edges") {
  checkGemm<GemmRowExchange<Stock, ranks, Scratch>, ranks, Scratch>(
      {{256, 512, 128}, {300, 512, 264}, {1, 512, 8}, {640, 512, 72}}, 2, false, alphaOne);
}

TEST_CASE("CUTLASS: GEMM and all-reduce, columns that are no multiple of a tile, many tiles for each block") {
  checkGemm<GemmRowExchange<Stock, ranks, Scratch>, ranks, Scratch>({{1500, 904, 192}, {129, 904, 512}}, 1, false,
                                                                    alphaOne);
}
