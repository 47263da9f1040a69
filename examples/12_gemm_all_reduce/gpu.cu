// 12 on GPUs: the whole layer as one kernel, one rank per GPU.
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/kernel.cuh"
#include "problem.hpp"

using namespace mscclpp;

namespace {

constexpr int blocks = 64;  // few enough to be resident at once
using Layer = example::Layer<0, GemmShape{.rows = 64, .columns = 64, .warpColumns = 2}>;

GpuBuffer<bf16> copyToGpu(const std::vector<bf16>& values) {
  GpuBuffer<bf16> buffer(values.size());
  gpuMemcpy(buffer.data(), values.data(), values.size());
  return buffer;
}

void layer(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const example::Problem problem{.tokens = 77, .width = 2048, .depth = 256};
  Communicator communicator(group.connect());
  const CollectiveState<Layer> state(communicator, DeviceType::GPU,
                                     Layer::scratchFor(problem.tokens, problem.width, ranks), problem.tokens);
  const auto input = copyToGpu(problem.input(rank)), weight = copyToGpu(problem.weight(rank)),
             residual = copyToGpu(problem.residual()), gain = copyToGpu(problem.gain());
  const GpuBuffer<bf16> hidden(residual.nelems()), output(residual.nelems());
  const example::LayerArrays arrays{input.data(),    weight.data(), gain.data(),
                                    residual.data(), hidden.data(), output.data()};
  const auto args = state.args(problem.tokens);

  // Epochs advance on the device, so calls need no set-up in between.
  for (int call = 0; call < 3; ++call) {
    gpuMemset(output.data(), 0, output.bytes());
    MSCCLPP_CUDATHROW(launch<Layer>({blocks, Layer::maxBlockThreads}, nullptr, args,
                                    arrays.operands(problem.tokens, problem.width, problem.depth),
                                    arrays.result(problem.width)));
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    state.check();
    std::vector<bf16> result(residual.nelems());
    gpuMemcpy(result.data(), output.data(), result.size());
    problem.check(result, ranks);
    example::requireSameBits(*communicator.bootstrap(), result);
  }
  if (rank == 0) {
    std::printf("linear layer by tensor cores, all-reduce, residual and RMSNorm over %d GPUs: right\n", ranks);
  }
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, layer);
}
