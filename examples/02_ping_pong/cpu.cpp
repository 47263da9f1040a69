// 02 on two CPU ranks: host memory that both processes map, and a group of one thread.
#include "example.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "ping_pong.hpp"

using namespace mscclpp;

namespace {

constexpr int count = 1000;
constexpr int rounds = 100;

void run(ProcessGroup& group) {
  example::require(group.size() == 2, "ping-pong is for two ranks");
  Communicator communicator(group.connect());
  const HostBuffer memory(count * sizeof(std::uint32_t));
  auto* data = static_cast<std::uint32_t*>(memory.data());
  const MemoryChannel channel =
      example::connectTo(1 - group.rank(), communicator, data, memory.bytes(), Transport::SharedMemory);

  example::pingPong(cpu::SerialGroup(), channel.deviceHandle(), data, count, rounds, group.rank());

  communicator.monitor(DeviceType::CPU)->check();  // throws if a wait failed
  for (int i = 0; i < count; ++i) example::require(data[i] == rounds, "word " + std::to_string(i) + " is wrong");
  if (group.rank() == 0) std::printf("%d words were sent back and forth %d times: right\n", count, rounds);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(2, argc, argv, run);
}
