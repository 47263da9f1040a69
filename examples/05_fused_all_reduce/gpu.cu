// 05 on GPUs: the whole layer as one kernel, one rank per GPU.
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

constexpr int blocks = 32;  // few enough to be resident at once, which the grid barrier needs
constexpr int threads = 256;

__global__ void __launch_bounds__(threads)
    layerKernel(const __grid_constant__ example::Collective::Args args, const __grid_constant__ example::Layer layer,
                GridBarrier* barrier) {
  example::runLayer(gpu::Grid(), args, layer, *barrier);
}

GpuBuffer<float> copyToGpu(const std::vector<float>& values) {
  GpuBuffer<float> buffer(values.size());
  gpuMemcpy(buffer.data(), values.data(), values.size());
  return buffer;
}

void layer(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const example::Problem problem{.tokens = 33, .width = 1021, .depth = 64};
  Communicator communicator(group.connect());
  const CollectiveState<example::Collective> state(communicator, DeviceType::GPU, problem.elements());

  const GpuBuffer<GridBarrier> barrier(1);
  const auto input = copyToGpu(problem.input(rank)), weight = copyToGpu(problem.weight(rank)),
             residual = copyToGpu(problem.residual()), gain = copyToGpu(problem.gain());
  const GpuBuffer<float> hidden(problem.elements()), output(problem.elements());
  const example::Layer layer{problem.tokens,  problem.width, problem.depth, input.data(), weight.data(),
                             residual.data(), gain.data(),   hidden.data(), output.data()};

  const example::Collective::Args args = state.args(problem.elements());
  // Epochs advance on the device, so calls need no set-up in between.
  for (int call = 0; call < 3; ++call) {
    gpuMemset(output.data(), 0, output.bytes());
    layerKernel<<<blocks, threads>>>(args, layer, barrier.data());
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    state.check();
    std::vector<float> result(problem.elements());
    gpuMemcpy(result.data(), output.data(), result.size());
    problem.check(result, ranks);
    example::requireSameBits(*communicator.bootstrap(), result);
  }
  if (rank == 0) std::printf("linear layer, all-reduce, residual and RMSNorm over %d GPUs, one kernel: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, layer);
}
