// The choice between the forms of a GEMM with a collective.
#include "kernels/gemm/form_choice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "kernels/gemm/cutlass/gemm.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;

namespace {

/// Rates of a GPU on which both GEMMs are equally fast.
constexpr GemmSpeed speed{700, 3e6, 4};
constexpr GemmRates equalRates{"", speed, 35e3, speed, 1, 10, 1, speed};
constexpr int ownBlocks = 130, cutlassBlocks = 128;  // of 132 multiprocessors

bool isSerial(const GemmRates& rates, GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth,
              int ranks = 2) {
  const GemmEstimate estimate =
      estimateGemm({rates, ownBlocks, cutlassBlocks, ranks}, {collective, 8192, width, depth}, rows);
  CHECK(estimate.fused > 0);
  CHECK(estimate.cutlass > 0);
  CHECK(estimate.serial > 0);
  return estimate.serial < estimate.fused;
}

GemmLayer fp8Layer(GemmCollective collective, std::size_t width, std::size_t depth) {
  GemmLayer layer{collective, 8192, width, depth};
  layer.operands = DataType::FLOAT8_E4M3FN;
  return layer;
}
GemmPlace placeOfTwo(const GemmLayer& layer) {
  return {ratesFor(gemmRates[gemmRatesOf("NVIDIA H200")], layer), ownBlocks, cutlassBlocks, 2};
}

/// The form that is taken between two H200, and the microseconds that it is estimated to take.
struct ChosenForm {
  GemmForm form;
  double time;
};
ChosenForm chooseBetweenTwo(const GemmLayer& layer, std::size_t rows, bool hasSerial = true) {
  const GemmPlace place = placeOfTwo(layer);
  const GemmEstimate estimate = estimateGemm(place, layer, rows);
  const GemmForm form = chooseGemm(estimate, formsOf(place, layer, rows, hasSerial));
  const double times[] = {estimate.fused, estimate.cutlass, estimate.serial, estimate.overlapped};
  return {form, times[static_cast<int>(form)]};
}

}  // namespace

TEST_CASE("fused GEMM: where both GEMMs are equally fast, fusing pays") {
  using enum GemmCollective;
  for (const auto collective : {AllReduce, ReduceScatter, AllGather}) {
    // In an all-gather, the few rows of each rank read the weights.
    CHECK(isSerial(equalRates, collective, 16, 8192, 4096) == (collective == AllGather));
    for (const int ranks : {2, 4, 8}) {
      CAPTURE(ranks);
      // In an all-gather, few rows of each of 8 ranks.
      CHECK(isSerial(equalRates, collective, 512, 8192, 4096, ranks) == (collective == AllGather && ranks == 8));
      CHECK_FALSE(isSerial(equalRates, collective, 8192, 8192, 4096, ranks));
    }
  }
}
TEST_CASE("fused GEMM: estimates and forms of fp8 are those that were measured") {
  using enum GemmCollective;
  // Of bench/results/h200_x2_gemm_fp8.txt: the fastest form, and its time.
  const struct {
    GemmCollective collective;
    std::size_t rows, width, depth;
    GemmForm fastest;
    double microseconds;
  } measured[] = {
      {AllReduce, 1, 8192, 14336, GemmForm::Fused, 36.8},
      {AllReduce, 16, 16384, 26624, GemmForm::Fused, 115.6},
      {ReduceScatter, 64, 8192, 14336, GemmForm::Serial, 57.5},
      {AllReduce, 256, 8192, 3584, GemmForm::Serial, 32.9},
      {AllReduce, 2048, 8192, 4096, GemmForm::Cutlass, 177.2},
      {ReduceScatter, 4096, 8192, 1024, GemmForm::Cutlass, 131},
  };
  for (const auto& call : measured) {
    CAPTURE(static_cast<int>(call.collective));
    CAPTURE(call.rows);
    const GemmLayer layer = fp8Layer(call.collective, call.width, call.depth);
    const ChosenForm chosen = chooseBetweenTwo(layer, call.rows);
    CHECK(chosen.form == call.fastest);
    CHECK(chosen.time / call.microseconds == doctest::Approx(1).epsilon(0.12));
  }
  // Sizes that cuBLAS does not multiply in place have no parts.
  GemmLayer odd{AllGather, 8192, 1288, 8192};
  CHECK(formsOf({gemmRates[0], ownBlocks, 0, 2}, odd, 1024, true).overlapped);
  odd.operands = DataType::FLOAT8_E4M3FN;
  CHECK_FALSE(formsOf({gemmRates[0], ownBlocks, 0, 2}, odd, 1024, true).overlapped);
  CHECK(formsOf({gemmRates[0], ownBlocks, 0, 2}, odd, 1024, true).serial);
}
TEST_CASE("fused GEMM: long products take the faster GEMM") {
  using enum GemmCollective;
  for (const GemmRates& rates : gemmRates) {
    CAPTURE(rates.gpu);
    for (const auto collective : {AllReduce, ReduceScatter, AllGather}) {
      CHECK(isSerial(rates, collective, 8192, 8192, 14336));
    }
  }
}
TEST_CASE("fused GEMM: few rows take the rounds of tiles that a GPU has") {
  using enum GemmCollective;
  // Of bench/results/h100_gemm.txt: full rounds, fewer tiles than multiprocessors, 12 tiles more than a round.
  const struct {
    GemmCollective collective;
    std::size_t rows, width, depth;
    double microseconds;
  } measured[] = {
      {AllReduce, 16, 8192, 14336, 82.4},    {AllReduce, 64, 5120, 12800, 71.6}, {AllReduce, 128, 8192, 14336, 123.4},
      {ReduceScatter, 64, 5120, 4096, 27.0}, {AllReduce, 32, 5120, 12800, 53.9}, {AllGather, 16, 9216, 16384, 145},
      {AllGather, 64, 28672, 8192, 194},
  };
  for (const auto& call : measured) {
    CAPTURE(call.width);
    CAPTURE(call.rows);
    const GemmLayer layer{call.collective, 8192, call.width, call.depth};
    CHECK(estimateGemm({gemmRates[0], ownBlocks, 0, 1}, layer, call.rows).fused / call.microseconds ==
          doctest::Approx(1).epsilon(0.1));
  }
  CHECK(fewRowsTileOf(ReduceScatter, 17, 2)->rows == 32);
  CHECK(fewRowsTileOf(ReduceScatter, 32, 2)->rows == 32);
  CHECK(fewRowsTileOf(ReduceScatter, 33, 2)->rows == 64);
  CHECK(fewRowsTileOf(AllGather, 128, 2)->rows == 64);
  CHECK(fewRowsTileOf(AllGather, 129, 2) == nullptr);
  CHECK(fewRowsTileOf(AllReduce, 129, 2) == nullptr);
}
TEST_CASE("fused GEMM: a reduce-scatter of 17 to 32 rows has a tile of its own, which is faster with few tiles") {
  const auto time = [](std::size_t rows, std::size_t width) {
    const GemmLayer layer{GemmCollective::ReduceScatter, 8192, width, 12800};
    return estimateGemm({gemmRates[0], ownBlocks, 0, 2}, layer, rows).fused;
  };
  CHECK(time(32, 5120) < 0.85 * time(33, 5120));  // 80 tiles: the multiprocessors are the limit
  CHECK(time(32, 8192) > 0.95 * time(33, 8192));  // 128 tiles: the memory is
}
TEST_CASE("fused GEMM: an all-reduce of few rows takes one hop or two, whichever is estimated to be faster") {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const std::size_t width : {5120, 8192, 16384}) {
      for (const std::size_t rows : {1, 6, 7, 16, 22, 23, 32, 51, 52, 128}) {
        CAPTURE(ranks);
        CAPTURE(width);
        CAPTURE(rows);
        const auto time = [&](int of) {
          const GemmLayer layer{GemmCollective::AllReduce, 8192, width, 16384};
          return estimateGemm({gemmRates[0], ownBlocks, 0, of}, layer, rows).fused;
        };
        const double product = 2.0 * static_cast<double>(rows * width) / gemmLinkBytes;
        const double oneHop = product * (ranks - 1), twoHops = 2 * oneHop / ranks + gemmHop;
        CHECK(time(ranks) - time(1) == doctest::Approx(std::min(oneHop, twoHops)));
      }
    }
  }
}
TEST_CASE("fused GEMM: the rates of a GPU are found by its name") {
  CHECK(gemmRates[gemmRatesOf("NVIDIA H200")].gpu == "H200");
  CHECK(gemmRates[gemmRatesOf("NVIDIA H100 80GB HBM3")].gpu == "H100");
  CHECK(gemmRatesOf("another GPU") == 0);
}

namespace {

/// The form on an H100 that has all of them.
GemmForm formOf(GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth, int ranks) {
  const GemmPlace place{gemmRates[gemmRatesOf("NVIDIA H100")], ownBlocks, cutlassBlocks, ranks};
  return chooseGemm(estimateGemm(place, {collective, 8192, width, depth}, rows), {.cutlass = true, .serial = true});
}

}  // namespace

TEST_CASE("fused GEMM: kernels of CUTLASS are for many rows") {
  using enum GemmCollective;
  // The layers of Llama-3-70B, divided by 2.
  for (const std::size_t rows : {1024, 2048, 4096, 8192}) {
    CAPTURE(rows);
    CHECK(formOf(AllReduce, rows, 8192, 4096, 2) == GemmForm::Cutlass);
    CHECK(formOf(ReduceScatter, rows, 8192, 4096, 2) == GemmForm::Cutlass);
  }
  for (const auto collective : {AllReduce, ReduceScatter}) {
    CHECK(formOf(collective, 512, 8192, 4096, 2) == GemmForm::Serial);
  }
  for (const std::size_t rows : {4096, 8192}) CHECK(formOf(AllGather, rows, 5120, 8192, 2) == GemmForm::Cutlass);
  for (const std::size_t rows : {1, 16, 64}) {
    CAPTURE(rows);
    CHECK(formOf(AllReduce, rows, 8192, 4096, 2) != GemmForm::Cutlass);
  }
}
TEST_CASE("fused GEMM: where cuBLAS is not found, kernels of CUTLASS are taken from medium sizes on") {
  using enum GemmCollective;
  for (const GemmRates& rates : gemmRates) {
    CAPTURE(rates.gpu);
    for (const auto collective : {AllReduce, ReduceScatter, AllGather}) {
      for (const std::size_t rows : {256, 512, 4096}) {
        CAPTURE(rows);
        const auto estimate = estimateGemm({rates, ownBlocks, cutlassBlocks, 2}, {collective, 8192, 8192, 4096}, rows);
        CHECK(chooseGemm(estimate, {.cutlass = true, .serial = false}) == GemmForm::Cutlass);
        CHECK(chooseGemm(estimate, {.cutlass = false, .serial = false}) == GemmForm::Fused);
      }
    }
  }
}
TEST_CASE("fused GEMM: a preferred form is taken where the call can have it") {
  const GemmEstimate estimate{.fused = 3, .cutlass = 2, .serial = 1};
  CHECK(chooseGemm(estimate, {true, true}) == GemmForm::Serial);
  for (const GemmForm form : {GemmForm::Fused, GemmForm::Cutlass, GemmForm::Serial}) {
    CHECK(chooseGemm(estimate, {true, true}, form) == form);
  }
  CHECK(chooseGemm(estimate, {true, false}, GemmForm::Serial) == GemmForm::Cutlass);
  CHECK(chooseGemm(estimate, {false, true}, GemmForm::Cutlass) == GemmForm::Serial);
  CHECK(chooseGemm({.fused = 1, .cutlass = 2, .serial = 3}, {true, true}) == GemmForm::Fused);
}
TEST_CASE("fused GEMM: estimates and forms of all-gathers are those that were measured") {
  // Of bench/results/h200_x2_gemm_gathers_sending.txt, long ones of fp8 of h200_x2_gemm_fp8_fast.txt: the fastest form,
  // and its time.
  constexpr auto bfloat = DataType::BFLOAT16, fp8 = DataType::FLOAT8_E4M3FN;
  const struct {
    DataType operands;
    std::size_t rows, width, depth;
    GemmForm fastest;
    double microseconds;
  } measured[] = {
      {bfloat, 512, 1280, 8192, GemmForm::Serial, 39.7},      {bfloat, 1024, 1280, 8192, GemmForm::Cutlass, 60.4},
      {bfloat, 2048, 1280, 8192, GemmForm::Cutlass, 89.7},    {bfloat, 4096, 1280, 8192, GemmForm::Cutlass, 131},
      {bfloat, 8192, 1280, 8192, GemmForm::Overlapped, 247},  {bfloat, 2048, 1280, 5120, GemmForm::Cutlass, 56.4},
      {bfloat, 4096, 1280, 5120, GemmForm::Cutlass, 90.6},    {bfloat, 512, 2304, 16384, GemmForm::Overlapped, 83.4},
      {bfloat, 2048, 2304, 16384, GemmForm::Overlapped, 209}, {bfloat, 4096, 2304, 16384, GemmForm::Overlapped, 383},
      {bfloat, 512, 5120, 8192, GemmForm::Serial, 75.2},      {bfloat, 2048, 5120, 8192, GemmForm::Overlapped, 219},
      {bfloat, 2048, 5120, 5120, GemmForm::Overlapped, 143},  {bfloat, 1024, 9216, 16384, GemmForm::Cutlass, 406},
      {bfloat, 1024, 7168, 8192, GemmForm::Overlapped, 164},  {fp8, 2048, 5120, 8192, GemmForm::Cutlass, 138},
      {fp8, 2048, 1280, 8192, GemmForm::Cutlass, 58.2},       {fp8, 4096, 1280, 8192, GemmForm::Cutlass, 77.1},
      {fp8, 8192, 1280, 8192, GemmForm::Cutlass, 150},        {fp8, 1024, 2304, 16384, GemmForm::Cutlass, 79.3},
      {fp8, 2048, 2304, 16384, GemmForm::Cutlass, 129},       {fp8, 4096, 2304, 16384, GemmForm::Cutlass, 247},
      {fp8, 8192, 2304, 16384, GemmForm::Cutlass, 472},       {fp8, 2048, 1280, 5120, GemmForm::Cutlass, 41.7},
      {fp8, 8192, 1280, 5120, GemmForm::Cutlass, 101},        {fp8, 1024, 5120, 8192, GemmForm::Cutlass, 73.8},
      {fp8, 2048, 5120, 5120, GemmForm::Cutlass, 94.2},       {fp8, 1024, 9216, 16384, GemmForm::Cutlass, 234},
  };
  for (const auto& call : measured) {
    CAPTURE(call.rows);
    CAPTURE(call.width);
    CAPTURE(static_cast<int>(call.operands));
    GemmLayer layer{GemmCollective::AllGather, 8192, call.width, call.depth};
    layer.operands = call.operands;
    const ChosenForm chosen = chooseBetweenTwo(layer, call.rows);
    CHECK(chosen.form == call.fastest);
    CHECK(chosen.time / call.microseconds > 0.85);
    CHECK(chosen.time / call.microseconds < 1.12);
  }
}
TEST_CASE("fused GEMM: forms and plans of fp8, with and without fast accumulation, are those that were measured") {
  // Of bench/results/h200_x2_gemm_fp8_fast.txt, where kernels of CUTLASS are the fastest. sends: whether blocks only
  // send.
  using enum GemmCollective;
  const struct {
    GemmCollective collective;
    std::size_t rows, width, depth;
    bool isFast, sends;
  } measured[] = {
      {AllReduce, 2048, 8192, 1024, false, true},      {AllReduce, 4096, 8192, 1024, false, true},
      {AllReduce, 8192, 8192, 1024, false, true},      {AllReduce, 8192, 8192, 1024, true, true},
      {AllReduce, 8192, 8192, 2048, false, true},      {AllReduce, 4096, 8192, 4096, false, false},
      {AllReduce, 8192, 8192, 4096, false, false},     {AllReduce, 2048, 8192, 4096, true, true},
      {ReduceScatter, 2048, 8192, 1024, false, true},  {ReduceScatter, 8192, 8192, 1024, false, true},
      {ReduceScatter, 2048, 8192, 1024, true, true},   {ReduceScatter, 8192, 8192, 4096, true, false},
      {ReduceScatter, 4096, 5120, 12800, true, false}, {AllGather, 2048, 1280, 8192, true, true},
      {AllGather, 4096, 2304, 16384, true, false},     {AllGather, 1024, 5120, 8192, true, false},
  };
  for (const auto& call : measured) {
    CAPTURE(call.rows);
    CAPTURE(call.width);
    CAPTURE(call.depth);
    CAPTURE(call.isFast);
    GemmLayer layer = fp8Layer(call.collective, call.width, call.depth);
    layer.fastAccumulation = call.isFast;
    CHECK(chooseBetweenTwo(layer, call.rows).form == GemmForm::Cutlass);
    CHECK((planCutlassGemm(placeOfTwo(layer), layer, call.rows).sendingBlocks > 0) == call.sends);
  }
}
TEST_CASE("fused GEMM: wide tiles of fp8 have sending blocks in long reduce-scatters that the link bounds") {
  const GemmLayer layer = fp8Layer(GemmCollective::ReduceScatter, 8192, 1024);
  const GemmPlace place = placeOfTwo(layer);
  const auto columnsOf = [&](std::size_t rows) {
    return cutlassTiles[planCutlassGemm(place, layer, rows).tile].columns;
  };
  CHECK(columnsOf(8192) == 256);
  CHECK(columnsOf(1024) == 128);
}
TEST_CASE("fused GEMM: fast accumulation is never estimated to take longer") {
  using enum GemmCollective;
  for (const auto collective : {AllReduce, ReduceScatter, AllGather}) {
    for (const int ranks : {1, 2, 4}) {  // for which there are kernels of CUTLASS
      for (const std::size_t rows : {16, 256, 1024, 3072, 8192}) {
        for (const std::size_t width : {1280, 4096, 8192}) {
          for (const std::size_t depth : {512, 1024, 4096, 16384}) {
            CAPTURE(static_cast<int>(collective));
            CAPTURE(ranks);
            CAPTURE(rows);
            CAPTURE(width);
            CAPTURE(depth);
            GemmLayer layer = fp8Layer(collective, width, depth);
            const auto estimate = [&] {
              return estimateGemm({ratesFor(gemmRates[1], layer), ownBlocks, cutlassBlocks, ranks}, layer, rows);
            };
            const GemmEstimate exact = estimate();
            layer.fastAccumulation = true;
            const GemmEstimate fast = estimate();
            CHECK(fast.fused == exact.fused);
            CHECK(fast.cutlass <= exact.cutlass);
            CHECK(fast.serial <= exact.serial);
            CHECK(fast.overlapped <= exact.overlapped);
          }
        }
      }
    }
  }
}
TEST_CASE("fused GEMM: copies beside GEMMs of cuBLAS are for all-gathers of medium sizes, or behind a slow link") {
  using enum GemmCollective;
  const auto form = [&](GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth,
                        bool hasSerial = true) {
    return chooseBetweenTwo({collective, 8192, width, depth}, rows, hasSerial).form;
  };
  // Measured between two H200 (bench/results/h200_x2_gemm_gathers_sending.txt, 8192 rows h200_x2_gemm_gathers.txt).
  for (const std::size_t depth : {5120, 8192}) {
    CHECK(form(AllGather, 256, 5120, depth) == GemmForm::Serial);
    // 1024 rows take about as long with copies as with kernels of CUTLASS.
    CHECK(form(AllGather, 1024, 5120, depth) != GemmForm::Serial);
    CHECK(form(AllGather, 8192, 5120, depth) == GemmForm::Cutlass);
    CHECK(form(AllGather, 1024, 5120, depth, false) == GemmForm::Cutlass);
    CHECK(form(AllGather, 1025, 5120, depth) == GemmForm::Cutlass);  // the ranks have slices of different sizes
    CHECK(form(AllReduce, 1024, 5120, depth) != GemmForm::Overlapped);
  }
  // One rank has nobody to copy from.
  const GemmLayer layer{AllGather, 8192, 5120, 8192};
  CHECK_FALSE(formsOf({gemmRates[0], ownBlocks, 0, 1}, layer, 1024, true).overlapped);
  // Measured on four H200 (bench/results/h200_x4_gemm_gathers.txt).
  const GemmPlace four{gemmRates[gemmRatesOf("NVIDIA H200")], ownBlocks, cutlassBlocks, 4};
  const auto formOfFour = [&](std::size_t rows, std::size_t width) {
    const GemmLayer sizes{AllGather, 8192, width, 8192};
    return chooseGemm(estimateGemm(four, sizes, rows), formsOf(four, sizes, rows, true));
  };
  CHECK(formOfFour(1024, 2560) == GemmForm::Serial);
  for (const std::size_t rows : {2048, 4096, 8192}) CHECK(formOfFour(rows, 2560) == GemmForm::Overlapped);
  CHECK(formOfFour(8192, 14336) == GemmForm::Cutlass);
}
TEST_CASE("fused GEMM: rows are copied in parts where the copies take longer than the GEMM beside them") {
  // Measured on two and four H200: 256 us in two parts and 248 in four, 97 in one and 96 in two, 211 and 223; on four
  // 254 and 266.
  const auto parts = [](int ranks, std::size_t rows, std::size_t width, std::size_t depth) {
    const GemmPlace place{gemmRates[gemmRatesOf("NVIDIA H200")], ownBlocks, 0, ranks};
    return planOverlappedGather(place, {GemmCollective::AllGather, 8192, width, depth}, rows).parts;
  };
  CHECK(parts(2, 8192, 1280, 8192) == 4);
  CHECK(parts(2, 2048, 1280, 8192) <= 2);
  CHECK(parts(2, 2048, 2304, 16384) == 1);
  CHECK(parts(2, 8192, 5120, 8192) == 1);
  CHECK(parts(4, 4096, 2560, 8192) == 1);
  CHECK(parts(2, 2, 8, 8) == 1);
}
TEST_CASE("fused GEMM: a form is taken where it gains what it has to") {
  const GemmForms all{.cutlass = true, .serial = true, .overlapped = true};
  const auto take = [&](double cutlass, double serial, double overlapped) {
    return chooseGemm({.fused = 200, .cutlass = cutlass, .serial = serial, .overlapped = overlapped}, all);
  };
  CHECK(take(100, 150, 99.5) == GemmForm::Cutlass);
  CHECK(take(100, 150, 98.5) == GemmForm::Overlapped);
  CHECK(take(150, 100, 99) == GemmForm::Serial);
  CHECK(take(150, 100, 96) == GemmForm::Overlapped);
  CHECK(take(100, 100.5, 99.5) == GemmForm::Serial);
  CHECK(take(100, 100.5, 94) == GemmForm::Overlapped);
  CHECK(take(100, 101.5, 120) == GemmForm::Cutlass);
  CHECK(take(300, 300, 300) == GemmForm::Fused);
  for (const GemmForm form : {GemmForm::Fused, GemmForm::Cutlass, GemmForm::Serial, GemmForm::Overlapped}) {
    CHECK(chooseGemm({.fused = 1, .cutlass = 2, .serial = 3, .overlapped = 4}, all, form) == form);
  }
}
TEST_CASE("fused GEMM: without kernels of CUTLASS, none are estimated") {
  const GemmLayer layer{GemmCollective::AllReduce, std::size_t{1} << 40, 8192, 4096};
  const auto estimate = estimateGemm({gemmRates[0], ownBlocks, 0, 2}, layer, std::size_t{1} << 40);
  CHECK(chooseGemm(estimate, {.cutlass = true, .serial = false}) == GemmForm::Fused);
}
TEST_CASE("fused GEMM: which sizes kernels of CUTLASS can have") {
  using enum GemmCollective;
  CHECK(cutlassAccepts(GemmLayer{AllReduce, 700, 136, 200}));
  CHECK_FALSE(cutlassAccepts(GemmLayer{AllReduce, 700, 132, 200}));
  CHECK_FALSE(cutlassAccepts(GemmLayer{AllReduce, 700, 136, 204}));
  CHECK_FALSE(cutlassAccepts(GemmLayer{AllReduce, std::size_t{1} << 31, 136, 200}));
  CHECK(cutlassAccepts(GemmLayer{AllReduce, 700, 136, 200}, 333, 2));
  CHECK(cutlassAccepts(GemmLayer{AllGather, 700, 136, 200}, 333, 2));
  CHECK(cutlassAccepts(GemmLayer{AllGather, 700, 136, 200}, 129, 2));
  CHECK_FALSE(cutlassAccepts(GemmLayer{AllGather, 700, 136, 200}, 128, 2));
  const GemmLayer scatters{ReduceScatter, 700, 136, 200};
  CHECK(cutlassAccepts(scatters, 512, 2));
  CHECK(cutlassAccepts(scatters, 512, 4));
  CHECK_FALSE(cutlassAccepts(scatters, 512, 8));
  CHECK_FALSE(cutlassAccepts(scatters, 384, 2));
}
TEST_CASE("fused GEMM: calls of any number of rows have a form that can serve them") {
  using enum GemmCollective;
  for (const auto collective : {AllReduce, ReduceScatter, AllGather}) {
    const GemmLayer layer{collective, 4096, 8192, 4096};
    for (const int ranks : {2, 4, 8}) {
      const GemmPlace place{gemmRates[0], ownBlocks, cutlassBlocks, ranks};
      bool tookCutlass = false, tookFused = false;
      for (std::size_t rows = 1; rows <= layer.maxRows; ++rows) {
        for (const bool hasSerial : {false, true}) {
          for (const auto preferred : {std::optional<GemmForm>(), std::optional(GemmForm::Cutlass)}) {
            const auto form =
                chooseGemm(estimateGemm(place, layer, rows), formsOf(place, layer, rows, hasSerial), preferred);
            const auto isMultiple = [&](int of) { return rows % static_cast<std::size_t>(of) == 0; };
            bool serves = true;
            if (form == GemmForm::Cutlass)
              serves = rows > 128 && (collective != ReduceScatter || isMultiple(128 * ranks));
            if (form == GemmForm::Serial) serves = hasSerial && (collective == AllReduce || isMultiple(ranks));
            if (!serves) FAIL("rows " << rows << " of " << ranks << " ranks, form " << static_cast<int>(form));
            tookCutlass |= form == GemmForm::Cutlass;
            tookFused |= form == GemmForm::Fused && rows > 128;
          }
        }
      }
      CHECK(tookCutlass);
      CHECK(tookFused == (collective == ReduceScatter));  // slices that are not whole tiles
    }
  }
}
TEST_CASE("fused GEMM: with a norm, calls of any number of rows have a form that can serve them") {
  using enum GemmCollective;
  for (const auto collective : {AllReduce, ReduceScatter}) {
    for (const std::size_t width : {std::size_t{4096}, mostFusedNormWidth, mostRmsNormElements}) {
      const GemmLayer layer{.collective = collective, .maxRows = 4096, .width = width, .depth = 4096, .hasNorm = true};
      CHECK_FALSE(cutlassAccepts(layer));
      for (const int ranks : {2, 8}) {
        const GemmPlace place{gemmRates[0], ownBlocks, 0, ranks};
        for (const std::size_t rows : {1, 15, 16, 17, 64, 65, 128, 129, 4096}) {
          for (const bool hasSerial : {false, true}) {
            const GemmForms forms = formsOf(place, layer, rows, hasSerial);
            CHECK_FALSE(forms.cutlass);
            CHECK(forms.fused == (width <= mostFusedNormWidth));
            CHECK(forms.serial == (hasSerial && collective == AllReduce));
            if (!forms.fused && !forms.serial) continue;
            const GemmEstimate estimate = estimateGemm(place, layer, rows);
            for (const auto preferred : {std::optional<GemmForm>(), std::optional(GemmForm::Fused)}) {
              const GemmForm form = chooseGemm(estimate, forms, preferred);
              CHECK((form == GemmForm::Fused ? forms.fused : form == GemmForm::Serial && forms.serial));
            }
          }
        }
      }
    }
  }
}
TEST_CASE("fused GEMM: with a norm, the tiles of few rows are those of an all-reduce in one hop") {
  using enum GemmCollective;
  CHECK(fewRowsTileOf(AllReduce, 16, 2, true)->rows == 16);
  CHECK(fewRowsTileOf(AllReduce, 17, 2, true)->rows == 64);
  CHECK(fewRowsTileOf(AllReduce, 65, 2, true) == nullptr);
  CHECK(fewRowsTileOf(ReduceScatter, 16, 2, true) == nullptr);
  const auto time = [](bool hasNorm, std::size_t rows) {
    const GemmLayer layer{.maxRows = 8192, .width = 8192, .depth = 4096, .hasNorm = hasNorm};
    return estimateGemm({gemmRates[0], ownBlocks, 0, 2}, layer, rows);
  };
  for (const std::size_t rows : {1, 16, 64, 1024}) {
    CHECK(time(true, rows).fused > time(false, rows).fused);
    CHECK(time(true, rows).serial > time(false, rows).serial);
  }
}
TEST_CASE("fused GEMM: the tile of kernels of CUTLASS") {
  const CutlassTile& wide =
      cutlassTiles[cutlassGemmTileFor(cutlassGemmTiles(DataType::BFLOAT16, false), 8192, 8192, 4096, cutlassBlocks)];
  CHECK(wide.columns == 256);
  const CutlassTile& few =
      cutlassTiles[cutlassGemmTileFor(cutlassGemmTiles(DataType::BFLOAT16, false), 256, 5120, 4096, cutlassBlocks)];
  CHECK(few.columns == 128);
}
TEST_CASE("fused GEMM: blocks that only send are for layers whose link takes about as long as their multiplication") {
  using enum GemmCollective;
  const auto plan = [](GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth, int blocks) {
    const GemmPlace place{gemmRates[gemmRatesOf("NVIDIA H200")], ownBlocks, blocks, 2};
    const CutlassGemmPlan found = planCutlassGemm(place, {collective, 8192, width, depth}, rows);
    const CutlassTile& tile = cutlassTiles[found.tile];
    CHECK(found.sendingBlocks % (tile.clusterRows * tile.clusterColumns) == 0);
    CHECK(found.sendingBlocks <= blocks / 4);
    CHECK(found.time > 0);
    return found;
  };
  for (const std::size_t rows : {1024, 2048, 8192}) {
    CAPTURE(rows);
    for (const auto collective : {ReduceScatter, AllReduce}) {
      const CutlassGemmPlan sends = plan(collective, rows, 8192, 1024, 132);
      CHECK(sends.sendingBlocks >= 8);
      CHECK(sends.sendingBlocks <= 14);
      CHECK(cutlassTiles[sends.tile].schedule == CutlassSchedule::Pingpong);
      for (const std::size_t depth : {3584, 4096, 14336}) {
        CHECK(plan(collective, rows, 8192, depth, 132).sendingBlocks == 0);
      }
    }
    CHECK(plan(AllGather, rows, 8192, 1024, 132).sendingBlocks == 0);
  }
  for (const std::size_t rows : {2048, 8192}) CHECK(plan(AllReduce, rows, 16384, 2048, 132).sendingBlocks > 0);
  // Where tiles are computed at once, the more blocks of an all-gather send, the later the first rows arrive.
  for (const std::size_t rows : {1024, 2048, 4096}) {
    CAPTURE(rows);
    const int sending = plan(AllGather, rows, 1280, 8192, 128).sendingBlocks;
    CHECK(sending >= 8);
    CHECK(sending <= 14);
    CHECK(plan(AllGather, rows, 5120, 8192, 128).sendingBlocks == 0);
  }
  for (int blocks = 32; blocks <= 132; blocks += 2) plan(ReduceScatter, 8192, 8192, 1024, blocks);
  for (const std::size_t rows : {256, 512}) CHECK(plan(ReduceScatter, rows, 512, 64, 132).sendingBlocks == 0);
  // One rank has nobody to send to.
  const GemmPlace alone{gemmRates[0], ownBlocks, 132, 1};
  CHECK(planCutlassGemm(alone, {ReduceScatter, 8192, 8192, 1024}, 8192).sendingBlocks == 0);
}
TEST_CASE("fused GEMM: all-reduces of medium sizes have narrow tiles, whose last round crosses the link sooner") {
  using enum GemmCollective;
  const auto isNarrow = [](GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth) {
    const GemmPlace place{gemmRates[gemmRatesOf("NVIDIA H200")], ownBlocks, cutlassBlocks, 2};
    const CutlassGemmPlan plan = planCutlassGemm(place, {collective, 8192, width, depth}, rows);
    CHECK(plan.sendingBlocks == 0);
    return cutlassTiles[plan.tile].schedule == CutlassSchedule::Pingpong;
  };
  // Measured on two H200, wide and narrow: 134 and 126 us, 224 and 218, 810 and 835, 354 and 360.
  for (const std::size_t rows : {1024, 2048}) {
    CHECK(isNarrow(AllReduce, rows, 8192, 4096));
    CHECK_FALSE(isNarrow(ReduceScatter, rows, 8192, 4096));
  }
  CHECK_FALSE(isNarrow(AllReduce, 8192, 8192, 4096));
  CHECK_FALSE(isNarrow(AllReduce, 1024, 8192, 14336));
}
TEST_CASE("fused GEMM: the swizzle of kernels of CUTLASS does not pad the problem much") {
  // Tiles of 128 x 256, whose rows come in pairs.
  CHECK(cutlassGemmSwizzle(0, 2048, 8192, 8, 128) == 4);
  CHECK(cutlassGemmSwizzle(0, 8192, 8192, 32, 128) == 4);
  CHECK(cutlassGemmSwizzle(0, 512, 8192, 0, 128) == 2);    // 4 rows of tiles
  CHECK(cutlassGemmSwizzle(0, 256, 8192, 0, 128) == 1);    // 2 of them
  CHECK(cutlassGemmSwizzle(0, 8192, 1280, 32, 128) == 1);  // 5 columns of tiles
  CHECK(cutlassGemmSwizzle(0, 8192, 2560, 32, 128) == 2);  // 10 of them
  CHECK(cutlassGemmSwizzle(0, 7900, 8192, 32, 128) == 4);  // 62 rows of tiles, as 64
  // 8 rows and 15 columns of tiles, as 16, which 120 blocks would compute in two rounds.
  CHECK(cutlassGemmSwizzle(4, 1024, 2304, 4, 128) == 2);
  CHECK(cutlassGemmSwizzle(4, 1024, 2304, 4, 120) == 1);
}
TEST_CASE(
    "fused GEMM: kernels of CUTLASS do not alternate between rows that wait for other ranks and rows that do not") {
  CHECK(cutlassGemmSwizzle(0, 1024, 8192, 4, 128) == 2);
  CHECK(cutlassGemmSwizzle(0, 512, 8192, 2, 128) == 1);
  CHECK(cutlassGemmSwizzle(0, 8192, 8192, 28, 128) == 2);
  CHECK(cutlassGemmSwizzle(0, 8192, 8192, 31, 128) == 1);
}
TEST_CASE("fused GEMM: the blocks of kernels of CUTLASS leave room for odd multiprocessors") {
  CHECK(cutlassGemmBlocks(132, 132) == 132);
  CHECK(cutlassGemmBlocks(131, 132) == 130);
  CHECK(cutlassGemmBlocks(130, 132) == 128);
  CHECK(cutlassGemmBlocks(64, 132) == 56);
  CHECK(cutlassGemmBlocks(40, 132) == 32);
  CHECK(cutlassGemmBlocks(39, 132) == 0);
  CHECK(cutlassGemmBlocks(2, 132) == 0);
}
