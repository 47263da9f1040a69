// 14 on GPUs: one launch, one rank per GPU.
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/kernel.cuh"
#include "problem.hpp"

using namespace mscclpp;

namespace {

using Collective = example::NormCollective<0>;

GpuBuffer<bf16> copyToGpu(const std::vector<bf16>& values) {
  GpuBuffer<bf16> buffer(values.size());
  gpuMemcpy(buffer.data(), values.data(), values.size());
  return buffer;
}
template <class T>
std::vector<T> copyToHost(const GpuBuffer<T>& buffer) {
  std::vector<T> values(buffer.nelems());
  gpuMemcpy(values.data(), buffer.data(), values.size());
  return values;
}

void normalise(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const example::Problem problem{.tokens = 33, .hidden = 4096};
  Communicator communicator(group.connect());
  const CollectiveState<Collective> state(communicator, DeviceType::GPU, problem.elements());

  const auto input = copyToGpu(problem.input(rank)), residual = copyToGpu(problem.residual()),
             weight = copyToGpu(problem.weight());
  const GpuBuffer<bf16> newResidual(problem.elements()), normalised(problem.elements());
  const GpuBuffer<f8e4m3> quantised(problem.elements());
  const GpuBuffer<float> scales(problem.tokens);
  const RmsNormArrays<bf16> arrays{.weight = weight.data(),
                                   .epsilon = example::epsilon,
                                   .residual = residual.data(),
                                   .newResidual = newResidual.data(),
                                   .normalised = normalised.data(),
                                   .quantised = quantised.data(),
                                   .scales = scales.data(),
                                   .scale = nullptr};
  Collective::Args args = state.args(problem.elements());
  args.hidden = problem.hidden;
  const LaunchShape shape = Collective::shapeFor(problem.tokens, problem.hidden, 64);
  // Epochs advance on the device, so calls need no set-up in between.
  for (int call = 0; call < 3; ++call) {
    gpuMemset(normalised.data(), 0, normalised.bytes());
    MSCCLPP_CUDATHROW(launch<Collective>(shape, nullptr, args, AlignedArraySource<bf16>(input.data()), arrays));
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    state.check();
    const auto bytes = copyToHost(quantised);
    problem.check(copyToHost(newResidual), copyToHost(normalised), bytes, copyToHost(scales), ranks);
    example::requireSameBits(*communicator.bootstrap(), bytes);
  }
  if (rank == 0) std::printf("all-reduce, residual, RMSNorm and fp8 over %d GPUs, one kernel: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, normalise);
}
