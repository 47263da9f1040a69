// 06 on two CPU ranks: the proxy copies through shared memory, or over a network.
#include <vector>

#include "exchange.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

using namespace mscclpp;

namespace {

constexpr int count = 10'000;
constexpr int rounds = 50;

void run(ProcessGroup& group, Transport transport) {
  example::require(group.size() == 2, "this exchange is for two ranks");
  const int peer = 1 - group.rank();
  Communicator communicator(group.connect());
  const HostBuffer sendBuffer(count * sizeof(std::uint32_t));
  const HostBuffer recvBuffer(count * sizeof(std::uint32_t));
  std::vector<std::uint32_t> sums(count);
  ProxyService service(ProxyServiceOptions{.thread = {.device = DeviceType::CPU}});
  const example::PortChannelSetup setup =
      example::connectPortChannel(peer, communicator, service, sendBuffer.data(), recvBuffer.data(), sendBuffer.bytes(),
                                  EndpointConfig(transport, DeviceType::CPU));
  service.startProxy();

  example::exchange(cpu::SerialGroup(), setup.channel.deviceHandle(), static_cast<std::uint32_t*>(sendBuffer.data()),
                    static_cast<const std::uint32_t*>(recvBuffer.data()), sums.data(), count, rounds, group.rank());

  service.stopProxy();                             // throws if a request was bad
  communicator.monitor(DeviceType::CPU)->check();  // throws if a wait failed
  for (int i = 0; i < count; ++i) {
    example::require(sums[static_cast<std::size_t>(i)] == example::expectedSum(i, rounds, peer),
                     "word " + std::to_string(i) + " is wrong");
  }
  if (group.rank() == 0) std::printf("%d words were exchanged %d times: right\n", count, rounds);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(
      2, argc, argv, [&](ProcessGroup& group) { run(group, example::transportFor(DeviceType::CPU, argc, argv)); });
}
