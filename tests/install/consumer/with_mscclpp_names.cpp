// A program written for MSCCL++: its header names, and a rank that is alone.
#include <mscclpp/core.hpp>
#include <mscclpp/errors.hpp>
#include <mscclpp/packet_device.hpp>

int main() {
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(0, 1);
  bootstrap->initialize(mscclpp::TcpBootstrap::createUniqueId());
  mscclpp::Communicator communicator(bootstrap);
  mscclpp::LLPacket packet{};
  packet.write(1, 2, 3);
  return communicator.bootstrap()->getNranks() == 1 && packet.read(3, -1).y == 2 ? 0 : 1;
}
