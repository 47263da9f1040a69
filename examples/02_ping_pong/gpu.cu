// 02 on two GPUs: GPU memory that both map, and a group of the threads of one block.
#include <vector>

#include "gpu_example.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "ping_pong.hpp"

using namespace mscclpp;

namespace {

constexpr int count = 100'000;
constexpr int rounds = 1000;

// The handle is passed by value: plain addresses, no host object.
__global__ void pingPongKernel(MemoryChannelHandle channel, std::uint32_t* data, int rank) {
  example::pingPong(gpu::Block(), channel, data, count, rounds, rank);
}

void run(ProcessGroup& group) {
  example::require(group.size() == 2, "ping-pong is for two ranks");
  Communicator communicator(group.connect());
  const GpuBuffer<std::uint32_t> data(count);
  const MemoryChannel channel = example::connectTo(1 - group.rank(), communicator, data.data(),
                                                   count * sizeof(std::uint32_t), Transport::CudaIpc);

  pingPongKernel<<<1, 512>>>(channel.deviceHandle(), data.data(), group.rank());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());

  communicator.monitor(DeviceType::GPU)->check();  // throws if a wait failed
  std::vector<std::uint32_t> words(count);
  gpuMemcpy(words.data(), data.data(), count);
  for (int i = 0; i < count; ++i) example::require(words[i] == rounds, "word " + std::to_string(i) + " is wrong");
  if (group.rank() == 0) std::printf("%d words were sent back and forth %d times: right\n", count, rounds);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 2, argc, argv, run);
}
