// 11 on GPUs, one rank per GPU: the kernel is compiled where the program runs, for the GPU that is there. One rank
// compiles it, and the others find it in the cache.
#include <vector>

#include "activation.hpp"
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t elements = 10'001;
constexpr float slope = 0.25f;

float inputAt(std::size_t i, int rank) {
  return static_cast<float>(i % 64) - 32.0f + static_cast<float>(rank);
}

void allReduce(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const auto program = jit::compileCollective(example::request(example::leakyRelu));
  const auto kernel = program.kernel();

  Communicator communicator(group.connect());
  WaitMonitor monitor(communicator, DeviceType::GPU);
  const auto layout = example::Collective::scratchFor(elements, ranks);
  const SymmetricMemory scratch(communicator, layout.windowBytes(), DeviceType::GPU);
  const GpuBuffer<std::uint64_t> epochs(epochWords);
  gpuMemcpy(epochs.data(), std::vector<std::uint64_t>(epochWords, 1).data(), epochWords);
  const GpuBuffer<float> input(elements), output(elements);
  std::vector<float> values(elements), wanted(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = inputAt(i, rank);
    for (int r = 0; r < ranks; ++r) wanted[i] += inputAt(i, r) > 0 ? inputAt(i, r) : slope * inputAt(i, r);
  }
  gpuMemcpy(input.data(), values.data(), elements);

  const example::Collective::Args args{.team = {rank, ranks},
                                       .window = scratch.window(),
                                       .epochs = {epochs.data()},
                                       .scratch = layout,
                                       .count = elements,
                                       .wait = {monitor.deviceControl(), 30'000'000'000}};
  const LaunchShape shape{.blocks = 16, .threads = 256};
  example::require(example::Collective::accepts(args, shape), "the scratch is too small");
  kernel.launch({.shape = shape}, args, example::Activation{ArraySource<float>(input.data()), slope},
                ArraySink<float>(output.data()));
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  monitor.check();
  gpuMemcpy(values.data(), output.data(), elements);
  example::require(values == wanted, "the sums are wrong");
  if (rank == 0) {
    std::printf("an all-reduce of leaky ReLUs over %d GPUs, compiled for %s: right\n", ranks,
                program.architecture().c_str());
  }
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, allReduce);
}
