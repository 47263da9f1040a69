// All-reduce and RMSNorm on a GPU, also by the generic launcher in a captured graph.
#include "all_reduce_rms_norm_cases.hpp"
#include "mscclpp/kernel.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// Captures calls that add to one residual, replays the graph, and compares the residual bitwise.
template <AllReduceRmsNormConfig config>
void checkGraph(int ranks, std::size_t rows, std::size_t hidden) {
  using C = AllReduceRmsNorm<bf16, config>;
  constexpr int calls = 3;
  constexpr int replays = 4;
  const std::size_t count = rows * hidden;
  const std::size_t bytes = count * sizeof(bf16);
  GpuBackend backend;
  NormBody<C> body{};
  body.maxCount = count;
  body.hidden = hidden;
  body.ranks = ranks;
  body.hasResidual = body.writesNormalised = true;
  NormLayout& layout = body.layout;
  layout.input[0] = roundUp(hidden * sizeof(bf16), 128);
  layout.residual[0] = layout.newResidual[0] = layout.input[0] + bytes;
  layout.normalised[0] = layout.residual[0] + bytes;
  auto scratch = backend.allocate(ranks, C::scratchFor(count, ranks).windowBytes(), C::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto data = backend.allocate(ranks, layout.normalised[0] + bytes, poisonByte);
  body.scratch = scratch.window();
  body.epochs = epochs.window();
  body.data = data.window();
  body.wait = backend.wait();
  std::vector<std::vector<bf16>> inputs;
  auto residual = contributions<bf16>(rows, hidden, 99, 1);
  for (int rank = 0; rank < ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, C::Scratch::firstEpoch));
    inputs.push_back(contributions<bf16>(rows, hidden, rank, 1));
    data.write(rank, contributions<bf16>(1, hidden, 77, 1));
    data.write(rank, inputs.back(), layout.input[0]);
    data.write(rank, residual, layout.residual[0]);
  }
  const auto sums = referenceOf<bf16, Sum>(inputs);
  for (int call = 0; call < calls * replays; ++call) {
    for (std::size_t i = 0; i < count; ++i) residual[i] = narrow<bf16>(widen<bf16>(sums[i]) + widen<bf16>(residual[i]));
  }

  const GpuStreams streams(ranks);
  std::vector<cudaGraphExec_t> graphs(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    setDeviceOfRank(rank);
    cudaFuncAttributes attributes;
    checkCuda(cudaFuncGetAttributes(&attributes, collectiveKernel<C, AlignedArraySource<bf16>, RmsNormArrays<bf16>>),
              "cudaFuncGetAttributes");
    auto args = body.args(rank);
    args.count = count;
    const AlignedArraySource<bf16> source(reinterpret_cast<const bf16*>(data.window().at(rank, layout.input[0])));
    cudaGraph_t graph;
    checkCuda(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal), "capture");
    for (int call = 0; call < calls; ++call) {
      checkCuda(launch<C>(C::shapeFor(rows, hidden, 4), streams[rank], args, source, body.arrays(rank, 0)), "launch");
    }
    checkCuda(cudaStreamEndCapture(streams[rank], &graph), "capture");
    checkCuda(cudaGraphInstantiate(&graphs[static_cast<std::size_t>(rank)], graph, 0), "cudaGraphInstantiate");
    checkCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    checkCuda(cudaGraphUpload(graphs[static_cast<std::size_t>(rank)], streams[rank]), "cudaGraphUpload");
    checkCuda(cudaStreamSynchronize(streams[rank]), "cudaGraphUpload");
  }
  for (int replay = 0; replay < replays; ++replay) {
    for (int rank = 0; rank < ranks; ++rank) {
      setDeviceOfRank(rank);
      checkCuda(cudaGraphLaunch(graphs[static_cast<std::size_t>(rank)], streams[rank]), "cudaGraphLaunch");
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    setDeviceOfRank(rank);
    checkCuda(cudaStreamSynchronize(streams[rank]), "graph");
    checkCuda(cudaGraphExecDestroy(graphs[static_cast<std::size_t>(rank)]), "cudaGraphExecDestroy");
  }
  if (backend.control()->expired != 0) FAIL(describe(backend.control()->record));
  const auto first = data.read<unsigned char>(0);
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    const auto memory = data.read<unsigned char>(rank);
    bool isRight = true;
    for (std::size_t i = 0; i < count; ++i) {
      bf16 written;
      std::memcpy(&written, memory.data() + layout.residual[0] + i * sizeof(bf16), sizeof(bf16));
      isRight &= (isNan(written) && isNan(residual[i])) || std::memcmp(&written, &residual[i], sizeof(bf16)) == 0;
    }
    CHECK(isRight);
    CHECK(std::equal(memory.begin() + static_cast<std::ptrdiff_t>(layout.residual[0]), memory.end(),
                     first.begin() + static_cast<std::ptrdiff_t>(layout.residual[0])));
  }
}

}  // namespace

TEST_CASE("all-reduce and RMSNorm: captured in a graph") {
  checkGraph<AllReduceRmsNormConfig{Protocol::Sentinel, Pattern::OneShot, 2}>(2, 5, 4096);
  checkGraph<AllReduceRmsNormConfig{Protocol::Sentinel, Pattern::OneShot, 2, Quantisation::None, 2}>(2, 9, 4096);
  checkGraph<AllReduceRmsNormConfig{Protocol::Sentinel, Pattern::TwoShot, 2}>(2, 40, 8192);
}
