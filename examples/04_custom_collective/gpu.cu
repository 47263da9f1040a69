// 04 on GPUs: the collective inside a user kernel, one rank per GPU.
#include <vector>

#include "all_gather.hpp"
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"

using namespace mscclpp;

namespace {

using Collective = example::AllGather<float, Protocol::LL16>;

constexpr std::size_t maxCount = 65536;
constexpr int blocks = 32;
constexpr int threads = 256;

// Other work of the kernel goes before, after, or into the source and the sink.
__global__ void __launch_bounds__(threads)
    gatherKernel(const __grid_constant__ Collective::Args args, const float* input, float* output) {
  Collective::run(gpu::Grid(), args, ArraySource<float>(input), ArraySink<float>(output));
}

void gather(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  Communicator communicator(group.connect());
  // What all calls share: scratch that all ranks map, epochs, and the monitor of the waits.
  const CollectiveState<Collective> state(communicator, DeviceType::GPU, maxCount);

  for (const std::size_t count : {1, 1001, 65536, 3, 65535}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = example::contribution(rank, i);
    const GpuBuffer<float> input(count);
    const GpuBuffer<float> output(count * static_cast<std::size_t>(ranks));
    gpuMemcpy(input.data(), data.data(), count);

    gatherKernel<<<blocks, threads>>>(state.args(count), input.data(), output.data());
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    state.check();

    std::vector<float> gathered(output.nelems());
    gpuMemcpy(gathered.data(), output.data(), gathered.size());
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      example::require(gathered[i] == example::contribution(static_cast<int>(i / count), i % count),
                       "element " + std::to_string(i) + " of " + std::to_string(count) + " is wrong");
    }
  }
  if (rank == 0) std::printf("all-gather over %d GPUs: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, gather);
}
