// The compiled GEMMs with a collective inside on CPU ranks, one per thread.
#include "mscclpp/kernels/fused_gemm.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "tests/fusion/gemm/gemm_tester.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr GemmCollective collectives[] = {GemmCollective::AllReduce, GemmCollective::ReduceScatter,
                                          GemmCollective::AllGather};

/// One call of random matrices; checks every element, and what is behind the output.
void checkCall(const FusedGemm& gemm, GemmCollective collective, int rank, int ranks, const FusedGemmCall& sizes) {
  const std::size_t rows = sizes.rows, width = sizes.width, depth = sizes.depth;
  const std::string where = "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", " +
                            std::to_string(rows) + " x " + std::to_string(width) + " x " + std::to_string(depth);
  CAPTURE(where);
  const bool gathers = collective == GemmCollective::AllGather, scatters = collective == GemmCollective::ReduceScatter;
  const Range own =
      steppedPart(rows, ceilDivide(rows, static_cast<std::size_t>(ranks)), static_cast<std::size_t>(rank));
  std::vector<HostMatrix<bf16>> inputs, weights;
  for (int r = 0; r < ranks; ++r) {
    const auto seed = static_cast<unsigned>(rows) * 16 + static_cast<unsigned>(r);
    inputs.push_back(randomMatrix<bf16>(rows, depth, depth, gathers ? static_cast<unsigned>(rows) : seed));
    weights.push_back(randomMatrix<bf16>(width, depth, depth, seed + 5000));
  }
  const auto self = static_cast<std::size_t>(rank);
  const auto at = [&](std::size_t row) { return inputs[self].data.begin() + static_cast<std::ptrdiff_t>(row * depth); };
  const std::vector<bf16> input(at(gathers ? own.begin : 0), at(gathers ? own.end : rows));
  const std::size_t outputRows = scatters ? own.size() : rows;
  std::vector<bf16> output(outputRows * width + 1, narrow<bf16>(-77.0f));
  FusedGemmCall call = sizes;
  call.input = input.data();
  call.weight = weights[self].data.data();
  call.output = output.data();
  gemm.run(call);
  std::vector<RankProduct> products;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    if (!gathers || r == self) products.push_back(RankProduct::of(inputs[r], weights[r]));
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < outputRows * width; ++i) {
    const std::size_t from = i + (scatters ? own.begin * width : 0);
    double sum = 0, bound = 1e-6;
    for (const RankProduct& product : products) {
      sum += product.values[from];
      bound += std::fabs(product.values[from]) / 256 + fp32Bound(depth + 2) * product.magnitudes[from];
    }
    bound += (std::fabs(sum) + bound) / 256;
    if (!(std::fabs(static_cast<double>(widen<bf16>(output[i])) - sum) <= bound)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(widen<bf16>(output.back()) == -77.0f);
}

}  // namespace

TEST_CASE("fused GEMMs of all kinds on CPU ranks, of any size") {
  for (const int ranks : {1, 2, 3}) {
    runAsThreads(ranks, [&](const std::shared_ptr<Bootstrap>& bootstrap) {
      Communicator communicator(bootstrap);
      const int rank = bootstrap->getRank();
      for (const GemmCollective collective : collectives) {
        const bool gathers = collective == GemmCollective::AllGather;
        const auto gemm = makeFusedGemm(communicator, {collective, 70, 77, 51}, DeviceType::CPU);
        for (const std::size_t rows : {1, 2, 5, 33, 70})
          checkCall(*gemm, collective, rank, ranks, {.rows = rows, .width = 77, .depth = 51});
        // What the scratch does not depend on: all ranks the same, and each rank another.
        checkCall(*gemm, collective, rank, ranks,
                  {.rows = 9, .width = gathers ? std::size_t{8} : 77, .depth = gathers ? std::size_t{51} : 130});
        if (gathers && ranks == 1) {
          expectInvalidUsage("depth 52 of a layer of depth 51", [&] { gemm->run({.rows = 1, .depth = 52}); });
        }
        if (!gathers) {
          expectInvalidUsage("width 78 of a layer of width 77", [&] { gemm->run({.rows = 1, .width = 78}); });
        }
        expectInvalidUsage("71 rows of a layer of 70", [&] { gemm->run({.rows = 71}); });
        gemm->run({.rows = 0});
        // Longer than the slots of a pipeline: 300 x 700 elements.
        const auto longer = makeFusedGemm(communicator, {collective, 300, 700, 16}, DeviceType::CPU);
        checkCall(*longer, collective, rank, ranks, {.rows = 299, .width = 700, .depth = 16});
        gemm->check();
        bootstrap->barrier();
      }
      expectInvalidUsage("above 0", [&] { makeFusedGemm(communicator, {}, DeviceType::CPU); });
      bootstrap->barrier();
    });
  }
}
