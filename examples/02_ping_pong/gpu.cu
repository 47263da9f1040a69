// 02 on two GPUs: GPU memory that both map, and a group of the threads of one block.
#include <vector>

#include "gpu_example.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "ping_pong.hpp"

using namespace mscclpp;

namespace {

constexpr int count = 100'000;
constexpr int turns = 1000;

// The handle goes into the kernel by value: plain addresses, no object of the host.
__global__ void pingPongKernel(MemoryChannelHandle channel, std::uint32_t* ball, int rank) {
  example::playPingPong(gpu::Block(), channel, ball, count, turns, rank);
}

void play(ProcessGroup& group) {
  example::require(group.size() == 2, "ping-pong is for two ranks");
  Communicator communicator(group.connect());
  const GpuBuffer<std::uint32_t> ball(count);
  const MemoryChannel channel = example::connectTo(1 - group.rank(), communicator, ball.data(),
                                                   count * sizeof(std::uint32_t), Transport::CudaIpc);

  pingPongKernel<<<1, 512>>>(channel.deviceHandle(), ball.data(), group.rank());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());

  communicator.monitor(DeviceType::GPU)->check();  // throws if a wait failed
  std::vector<std::uint32_t> words(count);
  gpuMemcpy(words.data(), ball.data(), count);
  for (int i = 0; i < count; ++i) example::require(words[i] == turns, "word " + std::to_string(i) + " is wrong");
  if (group.rank() == 0) std::printf("%d words went to and fro %d times: right\n", count, turns);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 2, argc, argv, play);
}
