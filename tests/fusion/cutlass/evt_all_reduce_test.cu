// Kernels of CUTLASS whose visitor trees contribute to an all-reduce from registers: a pingpong kernel in bfloat16 in
// two hops, and a cooperative one in float16 in one hop.
#include "gemm_cases.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

namespace fusion = cutlass::epilogue::fusion;
constexpr int ranks = 2;

// factor * accumulator
using Scaled =
    fusion::Sm90EVT<fusion::Sm90Compute<cutlass::multiplies, float, float, cutlass::FloatRoundStyle::round_to_nearest>,
                    fusion::Sm90ScalarBroadcast<float>, fusion::Sm90AccFetch>;
template <CutlassTile tile, class Element, RowDelivery delivery>
using Fused = EvtRowExchange<
    typename StockGemm<tile, Element, void, fusion::Sm90EVT<ContributeTiles<Element, ranks, delivery>, Scaled>>::Type>;
using InTwoHops = Fused<cutlassTiles[2], cutlass::bfloat16_t, RowDelivery::ToAll>;
using InOneHop = Fused<cutlassTiles[3], cutlass::half_t, RowDelivery::Redundant>;

const auto factorOne = [](auto& thread, const float*, const float*) { thread.op_0.op_0.scalars[0] = 1.0f; };

}  // namespace

TEST_CASE("CUTLASS: a visitor tree and all-reduce, whole tiles and edges") {
  checkGemm<InTwoHops, ranks>({{256, 2048, 128}, {300, 2048, 264}, {1, 2048, 8}, {640, 2048, 72}}, false, factorOne);
}
TEST_CASE("CUTLASS: a visitor tree and all-reduce, columns that are no multiple of a tile, many tiles for each block") {
  checkGemm<InTwoHops, ranks>({{1500, 904, 192}, {129, 904, 512}}, false, factorOne);
}
TEST_CASE("CUTLASS: a visitor tree and all-reduce, random shapes") {
  checkRandomGemms<InTwoHops, ranks>(3, factorOne);
}
TEST_CASE("CUTLASS: a cooperative kernel's visitor tree and all-reduce in one hop") {
  checkGemm<InOneHop, ranks>({{16, 1000, 256}, {1, 1000, 512}, {200, 1000, 72}, {1500, 1000, 200}}, false, factorOne);
}
TEST_CASE("CUTLASS: a cooperative kernel's visitor tree and all-reduce in one hop, random shapes") {
  checkRandomGemms<InOneHop, ranks>(4, factorOne);
}
