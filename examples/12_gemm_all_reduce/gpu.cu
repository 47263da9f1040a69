// 12 on GPUs: the whole layer as one kernel, one rank per GPU.
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

constexpr int blocks = 64;  // few enough to be resident at once
constexpr int threads = 256;
constexpr std::size_t maxWidth = 2048;

__global__ void __launch_bounds__(threads, 1)
    layerKernel(const __grid_constant__ example::LayerArgs<0> args, const __grid_constant__ example::Layer layer) {
  example::runLayer<maxWidth>(gpu::Grid(), args, layer);
}

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
  WaitMonitor monitor(communicator, DeviceType::GPU);

  const auto layout = example::scratchFor(problem.tokens, problem.width, ranks);
  const SymmetricMemory scratch(communicator, layout.windowBytes(), DeviceType::GPU);
  const GpuBuffer<std::uint64_t> epochs(epochWords);
  gpuMemcpy(epochs.data(), std::vector<std::uint64_t>(epochWords, example::Scratch::firstEpoch).data(), epochWords);
  const auto input = copyToGpu(problem.input(rank)), weight = copyToGpu(problem.weight(rank)),
             residual = copyToGpu(problem.residual()), gain = copyToGpu(problem.gain());
  const GpuBuffer<bf16> hidden(residual.nelems()), output(residual.nelems());
  const example::LayerArgs<0> args{.team = {rank, ranks},
                                   .window = scratch.window(),
                                   .epochs = {epochs.data()},
                                   .scratch = layout,
                                   .count = problem.tokens,
                                   .wait = {monitor.deviceControl(), 30'000'000'000}};
  const example::Layer layer{problem.tokens, problem.width,   problem.depth, input.data(), weight.data(),
                             gain.data(),    residual.data(), hidden.data(), output.data()};

  // Epochs advance on the device, so calls need no set-up in between.
  for (int call = 0; call < 3; ++call) {
    gpuMemset(output.data(), 0, output.bytes());
    layerKernel<<<blocks, threads>>>(args, layer);
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    monitor.check();
    std::vector<bf16> result(residual.nelems());
    gpuMemcpy(result.data(), output.data(), result.size());
    problem.check(result, ranks);
    example::requireSameBits(*communicator.bootstrap(), result);
  }
  if (rank == 0)
    std::printf("linear layer by tensor cores, all-reduce, residual and RMSNorm over %d GPUs: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, layer);
}
