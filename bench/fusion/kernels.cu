// The kernels of bench/fusion.
#include "kernels.hpp"
#include "mscclpp/arch/launch.hpp"
#include "mscclpp/fusion/all_reduce_rms_norm.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::fusionbench {

namespace {

constexpr int maxThreads = 512;
constexpr int packs = 2;  // of 16 bytes for each thread: rows of up to 8192 elements
constexpr float epsilon = 1e-5f;

int multiprocessors() {
  static const int count = [] {
    int device = 0;
    int found = 0;
    MSCCLPP_CUDATHROW(cudaGetDevice(&device));
    MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device));
    return found;
  }();
  return count;
}

RmsNormArrays<bf16> arraysOf(const Norm& norm) {
  return {.weight = static_cast<const bf16*>(norm.weight),
          .epsilon = epsilon,
          .residual = static_cast<const bf16*>(norm.residual),
          .newResidual = static_cast<bf16*>(norm.newResidual),
          .normalised = static_cast<bf16*>(norm.normalised),
          .quantised = nullptr,
          .scales = nullptr,
          .scale = nullptr};
}

template <class C>
class Fused : public FusedNorm {
 public:
  Fused(Communicator& communicator, std::size_t maxElements, const FusedShape& shape)
      : state_(communicator, DeviceType::GPU, maxElements), shape_(shape) {}

  void enqueue(const Norm& norm, cudaStream_t stream) const override {
    typename C::Args args = state_.args(norm.rows * norm.hidden);
    args.hidden = norm.hidden;
    MSCCLPP_CUDATHROW(
        launch<C>(shapeOf(norm, args), stream, args, Source(static_cast<const bf16*>(norm.input)), arraysOf(norm)));
  }
  void check() const override { state_.check(); }

 private:
  using Source = AlignedArraySource<bf16>;

  LaunchShape shapeOf(const Norm& norm, const typename C::Args& args) const {
    LaunchShape shape = C::shapeFor(norm.rows, norm.hidden, 1);
    if (shape_.threads > 0) shape.threads = shape_.threads;
    int blocks = shape_.blocks;
    if (blocks == 0) {  // as many as are resident at once
      constexpr auto kernel = collectiveKernel<C, Source, RmsNormArrays<bf16>>;
      MSCCLPP_CUDATHROW(
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, shape.threads, C::sharedBytes(args, shape)));
      blocks *= multiprocessors();
    }
    shape.blocks = C::shapeFor(norm.rows, norm.hidden, blocks).blocks;
    return shape;
  }

  CollectiveState<C> state_;
  FusedShape shape_;
};

template <Pattern pattern, int ranks>
std::unique_ptr<FusedNorm> make(Communicator& communicator, std::size_t maxElements, const FusedShape& shape) {
  constexpr AllReduceRmsNormConfig config{Protocol::Sentinel, pattern, ranks, Quantisation::None, packs};
  return std::make_unique<Fused<AllReduceRmsNorm<bf16, config>>>(communicator, maxElements, shape);
}
template <Pattern pattern>
std::unique_ptr<FusedNorm> makeFor(Communicator& communicator, std::size_t maxElements, const FusedShape& shape) {
  switch (communicator.bootstrap()->getNranks()) {
    case 2:
      return make<pattern, 2>(communicator, maxElements, shape);
    case 4:
      return make<pattern, 4>(communicator, maxElements, shape);
    case 8:
      return make<pattern, 8>(communicator, maxElements, shape);
    default:
      return make<pattern, 0>(communicator, maxElements, shape);
  }
}

__global__ void __launch_bounds__(maxThreads, 1)
    separateNormKernel(const __grid_constant__ RmsNormArrays<bf16> arrays, const bf16* __restrict__ sums,
                       std::uint32_t rows, std::uint32_t rowPacks) {
  arch::launchDependents();
  arch::waitForPrerequisites();
  const gpu::LinearGrid grid;
  RowThreads<packs, gpu::LinearGrid> rowThreads(grid, rowPacks);
  const RowNorm<bf16, packs> norm{arrays, rowPacks};
  Word128 weights[packs] = {};
  norm.loadWeights(rowThreads, weights);
  const std::uint32_t steps = (rows + rowThreads.stride() - 1) / rowThreads.stride();
  for (std::uint32_t step = 0; step < steps; ++step) {
    const std::uint32_t row = rowThreads.first() + step * rowThreads.stride();
    Word128 h[packs] = {};
    if (row < rows) {
      norm.forEachPack(rowThreads, [&](int i, std::uint32_t pack) {
        const std::size_t at = (std::size_t{row} * rowPacks + pack) * packSize<bf16>;
        auto values = fromWord<bf16>(arch::loadWide(sums + at));
        const auto residual = fromWord<bf16>(arch::loadWide(arrays.residual + at));
        MSCCLPP_UNROLL
        for (int k = 0; k < packSize<bf16>; ++k) {
          values[k] = narrow<bf16>(widen<bf16>(values[k]) + widen<bf16>(residual[k]));
        }
        h[i] = toWord<bf16>(values);
      });
    }
    norm.apply<Quantisation::None>(rowThreads, row, row < rows, h, weights);
  }
}

}  // namespace

std::unique_ptr<FusedNorm> makeFusedNorm(Communicator& communicator, FusedPattern pattern, std::size_t maxElements,
                                         const FusedShape& shape) {
  return pattern == FusedPattern::OneShot ? makeFor<Pattern::OneShot>(communicator, maxElements, shape)
                                          : makeFor<Pattern::TwoShot>(communicator, maxElements, shape);
}

void enqueueSeparateNorm(const Norm& norm, cudaStream_t stream) {
  using C = AllReduceRmsNorm<bf16, AllReduceRmsNormConfig{}>;
  // Not bound by a wait for peers: as many blocks as rows.
  const auto rowPacks = static_cast<std::uint32_t>(norm.hidden / packSize<bf16>);
  cudaLaunchAttribute overlap[1] = {};
  overlap[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(norm.rows));
  config.blockDim = dim3(static_cast<unsigned>(C::shapeFor(norm.rows, norm.hidden, 1).threads));
  config.dynamicSmemBytes = rowThreadsBytes(packs, static_cast<int>(config.blockDim.x), 32);
  config.stream = stream;
  config.attrs = overlap;
  config.numAttrs = 1;
  MSCCLPP_CUDATHROW(cudaLaunchKernelEx(&config, separateNormKernel, arraysOf(norm),
                                       static_cast<const bf16*>(norm.input), static_cast<std::uint32_t>(norm.rows),
                                       rowPacks));
}

}  // namespace mscclpp::fusionbench
