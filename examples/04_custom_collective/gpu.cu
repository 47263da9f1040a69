// 04 on GPUs: the collective inside a user kernel, one rank per GPU.
#include <vector>

#include "all_gather.hpp"
#include "gpu_example.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
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
  WaitMonitor monitor(communicator, DeviceType::GPU);

  // Scratch that all ranks map. It is zero-initialised, as LL16 packets require.
  static_assert(Collective::Scratch::initialByte == 0);
  const auto layout = Collective::scratchFor(maxCount, ranks);
  const SymmetricMemory scratch(communicator, layout.windowBytes(), DeviceType::GPU);
  const GpuBuffer<std::uint64_t> epochs(maxBlocks);
  gpuMemcpy(epochs.data(), std::vector<std::uint64_t>(maxBlocks, Collective::Scratch::firstEpoch).data(), maxBlocks);

  Collective::Args args{};
  args.team = Team<>(rank, ranks);
  args.window = scratch.window();
  args.epochs = {epochs.data()};
  args.scratch = layout;
  args.wait = BoundedWait(monitor.deviceControl(), 30'000'000'000);

  for (const std::size_t count : {1, 1001, 65536, 3, 65535}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = example::contribution(rank, i);
    const GpuBuffer<float> input(count);
    const GpuBuffer<float> output(count * static_cast<std::size_t>(ranks));
    gpuMemcpy(input.data(), data.data(), count);

    args.count = count;
    gatherKernel<<<blocks, threads>>>(args, input.data(), output.data());
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    monitor.check();

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
