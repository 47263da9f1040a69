// 16 on GPUs: two launches for the layer, one rank per GPU.
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/kernel.cuh"
#include "problem.hpp"

using namespace mscclpp;

namespace {

constexpr int blocks = 64;  // few enough to be resident at once
using Mlp = example::Mlp<GemmShape{.rows = 64, .columns = 64, .warpColumns = 2}, 4>;

GpuBuffer<bf16> copyToGpu(const std::vector<bf16>& values) {
  GpuBuffer<bf16> buffer(values.size());
  gpuMemcpy(buffer.data(), values.data(), values.size());
  return buffer;
}
std::vector<bf16> copyToHost(const GpuBuffer<bf16>& buffer) {
  std::vector<bf16> values(buffer.nelems());
  gpuMemcpy(values.data(), buffer.data(), values.size());
  return values;
}

void layer(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const example::Sizes sizes{.tokens = 205, .hidden = 512, .inner = 264};
  const example::Problem problem{sizes, ranks};
  const std::size_t ownTokens = problem.tokensOf(rank).size();
  Communicator communicator(group.connect());
  const CollectiveState<Mlp::Up> up(communicator, DeviceType::GPU,
                                    Mlp::Up::scratchFor(sizes.tokens, sizes.hidden, ranks), sizes.tokens);
  const CollectiveState<Mlp::Down> down(communicator, DeviceType::GPU,
                                        Mlp::Down::scratchFor(sizes.tokens, sizes.hidden, ranks), sizes.tokens);
  const auto input = copyToGpu(problem.rowsOf(rank, problem.inputs())),
             residual = copyToGpu(problem.rowsOf(rank, problem.residuals())), gateUp = copyToGpu(problem.gateUp(rank)),
             downWeight = copyToGpu(problem.down(rank)), gain = copyToGpu(problem.gain());
  const GpuBuffer<bf16> activations(sizes.tokens * sizes.inner), newResidual(ownTokens * sizes.hidden),
      output(ownTokens * sizes.hidden);
  const example::MlpArrays arrays{input.data(),    gateUp.data(),      downWeight.data(),  gain.data(),
                                  residual.data(), activations.data(), newResidual.data(), output.data()};
  const auto expected = problem.expected();
  for (int call = 0; call < 3; ++call) {
    gpuMemset(output.data(), 0, output.bytes());
    MSCCLPP_CUDATHROW(launch<Mlp::Up>({blocks, Mlp::Up::maxBlockThreads}, nullptr, up.args(sizes.tokens),
                                      arrays.upOperands(sizes, ownTokens), arrays.upOutput(sizes)));
    MSCCLPP_CUDATHROW(launch<Mlp::Down>({blocks, Mlp::Down::maxBlockThreads}, nullptr, down.args(sizes.tokens),
                                        arrays.downOperands(sizes), arrays.downResult(sizes)));
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    up.check();
    down.check();
    problem.check(rank, expected, copyToHost(newResidual), copyToHost(output));
  }
  if (rank == 0) std::printf("feed-forward layer, sequence- and tensor-parallel over %d GPUs: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, layer);
}
