// 06 on two GPUs: the proxy has copy engines move the data, or a network.
#include <vector>

#include "exchange.hpp"
#include "gpu_example.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"

using namespace mscclpp;

namespace {

constexpr int count = 1'000'000;
constexpr int rounds = 200;
constexpr int threads = 1024;

__global__ void __launch_bounds__(threads)
    exchangeKernel(PortChannelHandle channel, std::uint32_t* sendBuffer, const std::uint32_t* recvBuffer,
                   std::uint32_t* sums, int rank) {
  example::exchange(gpu::Block(), channel, sendBuffer, recvBuffer, sums, count, rounds, rank);
}

void run(ProcessGroup& group, Transport transport) {
  example::require(group.size() == 2, "this exchange is for two ranks");
  const int peer = 1 - group.rank();
  Communicator communicator(group.connect());
  const GpuBuffer<std::uint32_t> sendBuffer(count), recvBuffer(count), sums(count);
  ProxyService service;
  const example::PortChannelSetup setup =
      example::connectPortChannel(peer, communicator, service, sendBuffer.data(), recvBuffer.data(),
                                  count * sizeof(std::uint32_t), EndpointConfig(transport, DeviceType::GPU));
  service.startProxy();

  exchangeKernel<<<1, threads>>>(setup.channel.deviceHandle(), sendBuffer.data(), recvBuffer.data(), sums.data(),
                                 group.rank());
  MSCCLPP_CUDATHROW(cudaGetLastError());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());

  service.stopProxy();                             // throws if a request was bad
  communicator.monitor(DeviceType::GPU)->check();  // throws if a wait failed
  std::vector<std::uint32_t> result(count);
  gpuMemcpy(result.data(), sums.data(), count);
  for (int i = 0; i < count; ++i) {
    example::require(result[static_cast<std::size_t>(i)] == example::expectedSum(i, rounds, peer),
                     "word " + std::to_string(i) + " is wrong");
  }
  if (group.rank() == 0) std::printf("%d words were exchanged %d times: right\n", count, rounds);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(2, 2, argc, argv, [&](ProcessGroup& group) {
    run(group, example::transportFor(Device(DeviceType::GPU, group.localRank()), argc, argv));
  });
}
