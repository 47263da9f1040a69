// The choice between a GEMM with a collective inside and separate kernels.
#include "kernels/fused_gemm_choice.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

using namespace mscclpp;
using namespace mscclpp::kernels;

namespace {

/// Rates of a GPU on which both GEMMs are equally fast.
constexpr GemmSpeed speed{700, 3e6, 4};
constexpr GemmRates equalRates{"", speed, speed};

bool isSerial(const GemmRates& rates, GemmCollective collective, std::size_t rows, std::size_t width, std::size_t depth,
              int ranks = 2) {
  const GemmEstimate estimate = estimateGemm(rates, {collective, 8192, width, depth}, rows, ranks);
  CHECK(estimate.fused > 0);
  CHECK(estimate.serial > 0);
  return estimate.serial < estimate.fused;
}

}  // namespace

TEST_CASE("fused GEMM: where both GEMMs are equally fast, fusing pays") {
  using enum GemmCollective;
  for (const auto collective : {AllReduce, ReduceScatter, AllGather}) {
    // Few rows of several ranks read the weights once in an all-gather of its own.
    CHECK(isSerial(equalRates, collective, 16, 8192, 4096) == (collective == AllGather));
    for (const int ranks : {2, 4, 8}) {
      CAPTURE(ranks);
      CHECK_FALSE(isSerial(equalRates, collective, 512, 8192, 4096, ranks));
      CHECK_FALSE(isSerial(equalRates, collective, 8192, 8192, 4096, ranks));
    }
  }
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
TEST_CASE("fused GEMM: the rates of a GPU are found by its name") {
  CHECK(gemmRates[gemmRatesOf("NVIDIA H200")].gpu == "H200");
  CHECK(gemmRates[gemmRatesOf("NVIDIA H100 80GB HBM3")].gpu == "H100");
  CHECK(gemmRatesOf("another GPU") == 0);
}
