// A program that uses the headers alone: a packet written and read on a CPU.
#include <mscclpp/packet/ll8.hpp>

int main() {
  mscclpp::LL8Packet packet{};
  mscclpp::LL8Packet::Payload payload{};
  const std::uint32_t flag = 7;
  if (packet.tryRead(flag, payload)) return 1;
  packet.write(42u, flag);
  return packet.tryRead(flag, payload) && payload == 42u ? 0 : 1;
}
