// The compiled all-reduce with residual and RMSNorm on CPU ranks, one per thread.
#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "mscclpp/kernels/collectives.hpp"
#include "rms_norm_problem.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

void onRanks(int ranks, const std::function<void(Collectives&, int rank)>& body) {
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
    body(collectives, bootstrap->getRank());
    bootstrap->barrier();
  });
}

template <class T>
void check(Collectives& collectives, int rank, int ranks, DataType type) {
  for (const RmsNormProblem<T>& problem : rmsNormProblems<T>(256 * 1024)) {
    const auto input = problem.input(rank), residual = problem.residual(), weight = problem.weight();
    const auto sums = problem.sums(ranks);
    std::vector<T> newResidual(problem.elements()), normalised(problem.elements());
    RmsNormCall call{.input = input.data(),
                     .residual = residual.data(),
                     .weight = weight.data(),
                     .newResidual = newResidual.data(),
                     .normalised = normalised.data(),
                     .rows = problem.rows,
                     .hidden = problem.hidden,
                     .type = type,
                     .epsilon = problem.epsilon};
    collectives.allReduceRmsNorm(call);
    CHECK(problem.differenceOf(newResidual, normalised, sums) == "");
    // In place.
    normalised = input;
    newResidual = residual;
    call.input = normalised.data();
    call.residual = newResidual.data();
    collectives.allReduceRmsNorm(call);
    CHECK(problem.differenceOf(newResidual, normalised, sums) == "");
  }
}

}  // namespace

TEST_CASE("rows of every length, in one kernel and in several") {
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    onRanks(ranks, [&](Collectives& collectives, int rank) {
      check<float>(collectives, rank, ranks, DataType::FLOAT32);
      check<bf16>(collectives, rank, ranks, DataType::BFLOAT16);
      check<f16>(collectives, rank, ranks, DataType::FLOAT16);
    });
  }
}

TEST_CASE("wrong arguments") {
  onRanks(2, [](Collectives& collectives, int) {
    alignas(16) float data[9] = {};
    const RmsNormCall right{.input = data, .weight = data, .normalised = data, .rows = 1, .hidden = 8};
    const auto expect = [&](const char* part, const std::function<void(RmsNormCall&)>& change) {
      RmsNormCall call = right;
      change(call);
      expectInvalidUsage(part, [&] { collectives.allReduceRmsNorm(call); });
    };
    expect("double is not supported", [](RmsNormCall& call) { call.type = DataType::FLOAT64; });
    expect("rows have 6 elements", [](RmsNormCall& call) { call.hidden = 6; });
    expect("rows have 0 elements", [](RmsNormCall& call) { call.hidden = 0; });
    expect("rows have 16388 elements", [](RmsNormCall& call) { call.hidden = 16388; });
    expect("a negative number", [](RmsNormCall& call) { call.rows = static_cast<std::size_t>(-1); });
    expect("input is null", [](RmsNormCall& call) { call.input = nullptr; });
    expect("weight is null", [](RmsNormCall& call) { call.weight = nullptr; });
    expect("residual is not at a multiple of 16", [&](RmsNormCall& call) { call.residual = data + 1; });
    collectives.allReduceRmsNorm({.hidden = 8});  // no rows
    collectives.allReduceRmsNorm(right);
  });
}
