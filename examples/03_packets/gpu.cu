// 03 on two GPUs.
#include "gpu_example.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "packets.hpp"

using namespace mscclpp;

namespace {

constexpr std::uint32_t rounds = 1000;

__global__ void packetKernel(MemoryChannelHandle channel, std::uint32_t* words, int rank, int* wrong) {
  const int mine = example::exchangePackets(gpu::Block(), channel, words, rounds, rank);
  if (mine != 0) atomicAdd(wrong, mine);
}

void exchange(ProcessGroup& group) {
  example::require(group.size() == 2, "this example is for two ranks");
  Communicator communicator(group.connect());
  const GpuBuffer<std::uint32_t> words(2 * example::messageWords);
  const GpuBuffer<> packets(2 * example::packetBytes);
  const GpuBuffer<int> wrong(1);
  const MemoryChannel channel =
      example::connectPackets(1 - group.rank(), communicator, words.data(), packets.data(), Transport::CudaIpc);

  packetKernel<<<1, 512>>>(channel.deviceHandle(), words.data(), group.rank(), wrong.data());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());

  communicator.monitor(DeviceType::GPU)->check();
  int count = 0;
  gpuMemcpy(&count, wrong.data(), 1);
  example::require(count == 0, std::to_string(count) + " words are wrong");
  if (group.rank() == 0) std::printf("%u messages each way: right\n", rounds);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 2, argc, argv, exchange);
}
