// The compiled all-reduce with residual and RMSNorm on GPUs, one process per rank; also in graphs.
#include <doctest/doctest.h>

#include "gpu_rank.cuh"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "rms_norm_problem.hpp"
#include "tests/kernels/invalid_usage.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// The memory of a problem on this rank.
template <class T>
struct Arrays {
  const RmsNormProblem<T>& problem;
  detail::UniqueGpuPtr<T> input, residual, weight, newResidual, normalised;

  Arrays(const RmsNormProblem<T>& given, int rank)
      : problem(given),
        input(copyToGpu(given.input(rank))),
        residual(copyToGpu(given.residual())),
        weight(copyToGpu(given.weight())),
        newResidual(copyToGpu(std::vector<T>(given.elements()))),
        normalised(copyToGpu(std::vector<T>(given.elements()))) {}

  RmsNormCall call(DataType type, cudaStream_t stream) const {
    return {.input = input.get(),
            .residual = residual.get(),
            .weight = weight.get(),
            .newResidual = newResidual.get(),
            .normalised = normalised.get(),
            .rows = problem.rows,
            .hidden = problem.hidden,
            .type = type,
            .epsilon = problem.epsilon,
            .stream = stream};
  }
  void check(const Collectives& collectives, int ranks, cudaStream_t stream) const {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    collectives.check();
    std::vector<T> residuals(problem.elements()), norms(problem.elements());
    gpuMemcpy(residuals.data(), newResidual.get(), residuals.size(), cudaMemcpyDeviceToHost);
    gpuMemcpy(norms.data(), normalised.get(), norms.size(), cudaMemcpyDeviceToHost);
    CHECK(problem.differenceOf(residuals, norms, problem.sums(ranks)) == "");
    MSCCLPP_CUDATHROW(cudaMemsetAsync(newResidual.get(), 0, problem.elements() * sizeof(T), stream));
    MSCCLPP_CUDATHROW(cudaMemsetAsync(normalised.get(), 0, problem.elements() * sizeof(T), stream));
  }
};

template <class T>
void check(GpuRank& rank, Collectives& collectives, DataType type) {
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  for (const RmsNormProblem<T>& problem : rmsNormProblems<T>(8 << 20)) {
    const Arrays<T> arrays(problem, rank.rank);
    for (int call = 0; call < 3; ++call) {
      collectives.allReduceRmsNorm(arrays.call(type, stream));
      arrays.check(collectives, rank.ranks, stream);
    }
    const Graph graph(stream, [&] { collectives.allReduceRmsNorm(arrays.call(type, stream)); });
    for (int launch = 0; launch < 3; ++launch) {
      graph.launch();
      arrays.check(collectives, rank.ranks, stream);
    }
  }
}

}  // namespace

TEST_CASE("rows of every length, eager and in graphs") {
  runOnAllGpus("a rank with rows of every length");
}
TEST_CASE("a rank with rows of every length" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  check<float>(rank, collectives, DataType::FLOAT32);
  check<bf16>(rank, collectives, DataType::BFLOAT16);
  check<f16>(rank, collectives, DataType::FLOAT16);
  rank.bootstrap->barrier();
}

TEST_CASE("a first call in a capture") {
  runOnAllGpus("a rank whose first call is in a capture");
}
TEST_CASE("a rank whose first call is in a capture" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const RmsNormProblem<float> problem{1, 8};
  const Arrays<float> arrays(problem, rank.rank);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const Graph graph(stream, [&] {
    expectInvalidUsage("make a call before the capture",
                       [&] { collectives.allReduceRmsNorm(arrays.call(DataType::FLOAT32, stream)); });
  });
  rank.bootstrap->barrier();
}
