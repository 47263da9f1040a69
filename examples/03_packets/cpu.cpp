// 03 on two CPU ranks.
#include <vector>

#include "example.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "packets.hpp"

using namespace mscclpp;

namespace {

constexpr std::uint32_t rounds = 100;

void exchange(ProcessGroup& group) {
  example::require(group.size() == 2, "this example is for two ranks");
  Communicator communicator(group.connect());
  std::vector<std::uint32_t> words(2 * example::messageWords);
  const HostBuffer packets(2 * example::packetBytes);
  const MemoryChannel channel =
      example::connectPackets(1 - group.rank(), communicator, words.data(), packets.data(), Transport::SharedMemory);

  const int wrong =
      example::exchangePackets(cpu::SerialGroup(), channel.deviceHandle(), words.data(), rounds, group.rank());

  communicator.monitor(DeviceType::CPU)->check();
  example::require(wrong == 0, std::to_string(wrong) + " words are wrong");
  if (group.rank() == 0) std::printf("%u messages each way: right\n", rounds);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(2, argc, argv, exchange);
}
