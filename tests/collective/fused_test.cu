// An all-reduce inside a user's kernel: a source that computes, a sink that adds a residual and scales, and other work
// in the other blocks. The ranks are distributed round-robin over the GPUs, each with its own stream.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "mscclpp/collective/all_reduce.hpp"
#include "reference.hpp"
#include "tests/backend/gpu.cuh"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int ranks = 4;
constexpr int collectiveBlocks = 4;
constexpr int otherBlocks = 3;
constexpr int threads = 128;

/// Computes bias + activation on demand.
struct BiasedActivation {
  ArraySource<bf16> activation;
  const float* bias;
  std::size_t width;

  MSCCLPP_DEVICE Pack<bf16> operator()(std::size_t first, int valid) const {
    Pack<bf16> pack = activation(first, valid);
    for (int i = 0; i < valid; ++i) {
      pack[i] = narrow<bf16>(widen<bf16>(pack[i]) + bias[(first + static_cast<std::size_t>(i)) % width]);
    }
    return pack;
  }
};

/// residual += result; normalised = residual * scale.
struct AddResidual {
  bf16* residual;
  ArraySink<bf16> normalised;
  float scale;

  MSCCLPP_DEVICE void operator()(std::size_t first, const Pack<bf16>& result, int valid) const {
    Pack<bf16> scaled{};
    for (int i = 0; i < valid; ++i) {
      bf16& element = residual[first + static_cast<std::size_t>(i)];
      element = narrow<bf16>(widen<bf16>(element) + widen<bf16>(result[i]));
      scaled[i] = narrow<bf16>(widen<bf16>(element) * scale);
    }
    normalised(first, scaled, valid);
  }
};

/// The end of a layer: the first blocks all-reduce while the others square some numbers.
template <class Collective>
__global__ void __launch_bounds__(threads)
    fusedKernel(const __grid_constant__ typename Collective::Args args, const __grid_constant__ BiasedActivation source,
                const __grid_constant__ AddResidual sink, int* squares, int count) {
  const gpu::Grid rest(collectiveBlocks, otherBlocks);
  if (rest.blockIndex() < 0) {
    Collective::run(gpu::Grid(0, collectiveBlocks), args, source, sink);
  } else {
    for (int i = rest.blockIndex() * threads + static_cast<int>(threadIdx.x); i < count; i += otherBlocks * threads) {
      squares[i] = i * i;
    }
  }
}

template <class T>
const T* at(const GpuBuffers& buffers, int rank) {
  return reinterpret_cast<const T*>(buffers.window().at(rank));
}

template <AllReduceConfig config>
void checkFused(std::size_t count, const PipelineShape& shape = {}) {
  using Collective = AllReduce<bf16, Sum, config>;
  using Scratch = typename Collective::Scratch;
  const Scratch layout = Collective::scratchFor(count, ranks, shape);
  constexpr std::size_t width = 24;
  constexpr float scale = 0.375f;
  constexpr int squareCount = 5000;
  constexpr int layers = 3;
  GpuBackend backend;
  auto scratch = backend.allocate(ranks, layout.windowBytes(), Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto activations = backend.allocate(ranks, count * sizeof(bf16), 0);
  auto residuals = backend.allocate(ranks, count * sizeof(bf16), 0);
  auto normalised = backend.allocate(ranks, count * sizeof(bf16), poisonByte);
  auto biases = backend.allocate(ranks, width * sizeof(float), 0);
  auto squares = backend.allocate(ranks, squareCount * sizeof(int), 0);

  std::vector<float> bias(width);
  for (std::size_t i = 0; i < width; ++i) bias[i] = static_cast<float>(i) / 8 - 1;
  const auto inputs = inputsOf<bf16>(count, ranks, 17);
  auto residual = randomElements<bf16>(count, 18);
  std::vector<std::vector<bf16>> biased = inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, Scratch::firstEpoch));
    activations.write(rank, inputs[r]);
    residuals.write(rank, residual);
    biases.write(rank, bias);
    for (std::size_t i = 0; i < count; ++i) biased[r][i] = narrow<bf16>(widen<bf16>(inputs[r][i]) + bias[i % width]);
  }
  const auto reduced = referenceOf<bf16, Sum>(biased);
  std::vector<bf16> scaled(count);
  for (int layer = 0; layer < layers; ++layer) {
    for (std::size_t i = 0; i < count; ++i) {
      residual[i] = narrow<bf16>(widen<bf16>(residual[i]) + widen<bf16>(reduced[i]));
      scaled[i] = narrow<bf16>(widen<bf16>(residual[i]) * scale);
    }
  }

  const GpuStreams streams(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    setDeviceOfRank(rank);
    cudaFuncAttributes attributes;
    checkCuda(cudaFuncGetAttributes(&attributes, fusedKernel<Collective>), "cudaFuncGetAttributes");
  }
  for (int layer = 0; layer < layers; ++layer) {
    for (int rank = 0; rank < ranks; ++rank) {
      setDeviceOfRank(rank);
      typename Collective::Args args{};
      args.team = decltype(args.team)(rank, ranks);
      for (int r = 0; r < ranks; ++r) args.window.base[r] = scratch.window().at(r);
      args.epochs = {reinterpret_cast<std::uint64_t*>(epochs.window().at(rank))};
      args.scratch = layout;
      args.count = count;
      args.wait = backend.wait();
      const BiasedActivation source{ArraySource<bf16>(at<bf16>(activations, rank)), at<float>(biases, rank), width};
      const AddResidual sink{reinterpret_cast<bf16*>(residuals.window().at(rank)),
                             ArraySink<bf16>(reinterpret_cast<bf16*>(normalised.window().at(rank))), scale};
      fusedKernel<Collective><<<collectiveBlocks + otherBlocks, threads, 0, streams[rank]>>>(
          args, source, sink, reinterpret_cast<int*>(squares.window().at(rank)), squareCount);
      checkCuda(cudaGetLastError(), "launch");
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    setDeviceOfRank(rank);
    checkCuda(cudaStreamSynchronize(streams[rank]), "kernel");
  }
  CHECK(backend.control()->expired == 0);
  if (backend.control()->expired != 0) FAIL_CHECK(describe(backend.control()->record));

  const auto sameBits = [&](const std::vector<bf16>& wanted, const std::vector<bf16>& actual) {
    for (std::size_t i = 0; i < count; ++i) {
      if (isNan(wanted[i]) && isNan(actual[i])) continue;
      if (std::memcmp(&wanted[i], &actual[i], sizeof(bf16)) != 0) return "element " + std::to_string(i);
    }
    return std::string();
  };
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    const auto residualDifference = sameBits(residual, residuals.read<bf16>(rank));
    const auto normalisedDifference = sameBits(scaled, normalised.read<bf16>(rank));
    CHECK(residualDifference == "");
    CHECK(normalisedDifference == "");
    CHECK(firstDifference(residuals.read<bf16>(rank), residuals.read<bf16>(0)) == -1);
    const auto squared = squares.read<int>(rank);
    bool right = true;
    for (int i = 0; i < squareCount; ++i) right &= squared[static_cast<std::size_t>(i)] == i * i;
    CHECK(right);
  }
}

}  // namespace

TEST_CASE("fused: packets in one shot and in two") {
  checkFused<AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::OneShot, .ranks = ranks}>(5001);
  checkFused<AllReduceConfig{.protocol = Protocol::Sentinel, .pattern = Pattern::TwoShot, .ranks = ranks}>(40'003);
  checkFused<AllReduceConfig{.protocol = Protocol::LL128, .pattern = Pattern::TwoShot, .ranks = ranks}>(40'003);
}

TEST_CASE("fused: a pipeline") {
  checkFused<AllReduceConfig{Protocol::Simple, Pattern::TwoShot, ranks, 2}>(
      200'003, {.tilePacks = 64, .blocks = collectiveBlocks, .slots = 4});
}
