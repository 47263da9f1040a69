// The cases of packet/ on CPU threads, and packets within one thread.
#include "copy_packets_cases.hpp"
#include "protocol_cases.hpp"

using namespace mscclpp;

template <class P>
void checkEpochs(bool flagIsLowHalf) {
  std::uint64_t epoch = 0xfffffff0u;
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t next = P::nextEpoch(epoch);
    CHECK(next > epoch);
    CHECK((next & 1) != (epoch & 1));
    if (flagIsLowHalf) CHECK(static_cast<std::uint32_t>(next) != 0);
    epoch = next;
  }
}

TEST_CASE("packet: epochs alternate in parity, and none has the flag of an empty slot") {
  checkEpochs<PacketRows<LL8Packet>>(true);
  checkEpochs<PacketRows<LL16Packet>>(true);
  checkEpochs<Sentinel>(false);
  checkEpochs<LL128<LineStore::Ordered>>(false);
}

TEST_CASE("ll16: a payload has arrived when both flags have") {
  LL16Packet packet{};
  LL16Packet::Payload payload{};
  CHECK_FALSE(packet.tryRead(5, payload));
  packet.write({7, 8}, 5);
  CHECK(packet.tryRead(5, payload));
  CHECK(payload.x == 7);
  CHECK(payload.y == 8);
  CHECK_FALSE(packet.tryRead(6, payload));
  packet.flag1 = 6;
  CHECK_FALSE(packet.tryRead(5, payload));
  CHECK_FALSE(packet.tryRead(6, payload));
  packet.flag1 = 5;
  packet.flag2 = 6;
  CHECK_FALSE(packet.tryRead(5, payload));
  CHECK_FALSE(packet.tryRead(6, payload));
  packet.clear();
  CHECK_FALSE(packet.tryRead(5, payload));
  CHECK_FALSE(packet.tryRead(6, payload));
}

TEST_CASE("ll8: a payload has arrived when its flag has") {
  LL8Packet packet{};
  LL8Packet::Payload payload{};
  CHECK_FALSE(packet.tryRead(5, payload));
  packet.write(7, 5);
  CHECK(packet.tryRead(5, payload));
  CHECK(payload == 7);
  CHECK_FALSE(packet.tryRead(6, payload));
  packet.clear();
  CHECK_FALSE(packet.tryRead(5, payload));
}

TEST_CASE("packet: the layout is MSCCL++'s") {
  LL16Packet packet{};
  packet.write({1, 2}, 3);
  CHECK((packet.data1 == 1 && packet.flag1 == 3 && packet.data2 == 2 && packet.flag2 == 3));
  LL8Packet small{};
  small.write(1, 3);
  CHECK((small.data == 1 && small.flag == 3));
}
