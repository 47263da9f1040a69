// 08 on GPUs behind an NVSwitch. It compiles, and its instructions are checked; it has not been run, so the tests leave
// it out.
#include <vector>

#include "gpu_example.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/channel/nvls.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "switch_all_reduce.hpp"

using namespace mscclpp;

namespace {

constexpr int blocks = 16;
constexpr int threads = 256;

__global__ void __launch_bounds__(threads) reduceKernel(const __grid_constant__ SwitchChannelHandle channel,
                                                        const bf16* input, bf16* output, std::size_t count) {
  example::switchAllReduce(gpu::Grid(), channel, input, output, count);
}

void reduce(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const auto communicator = std::make_shared<Communicator>(group.connect());
  std::vector<int> everyone;
  for (int r = 0; r < ranks; ++r) everyone.push_back(r);

  // Rounded up to multicast's granularity; throws, with the reason, where multicast is not available.
  const GpuBuffer<bf16> buffer(2 * 65536);
  const auto connection = connectNvlsCollective(communicator, everyone, buffer.bytes());
  const SwitchChannel channel = connection->bindMemory(buffer.data(), buffer.bytes());
  const auto monitor = communicator->monitor(DeviceType::GPU);

  for (const std::size_t count : {1, 65536, 4099, 8, 20000}) {
    std::vector<bf16> numbers = example::contributions(rank, count);
    const GpuBuffer<bf16> input(count);
    const GpuBuffer<bf16> output(count);
    gpuMemcpy(input.data(), numbers.data(), count);

    reduceKernel<<<blocks, threads>>>(channel.deviceHandle(), input.data(), output.data(), count);
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    monitor->check();

    gpuMemcpy(numbers.data(), output.data(), count);
    example::requireSum(numbers, ranks);
  }
  if (rank == 0) std::printf("all-reduce over %d GPUs through the switch: right\n", ranks);
  communicator->bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 8, argc, argv, reduce);
}
