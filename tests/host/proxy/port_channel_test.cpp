// Port channels of CPU ranks, and offsets that only the wide trigger can hold.
#include "port_channel_cases.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("port channel: offsets beyond 4 GiB") {
  Communicator communicator(singleRankBootstrap());
  const std::uint64_t far = (std::uint64_t{1} << 32) + 4096;
  PortEnd<WideTrigger> end(communicator, 0, 4);
  const HostBuffer large(far + 64);  // only touched pages are allocated
  const auto id = end.service.addMemory(communicator.registerMemory(large.data(), far + 64, Transport::SharedMemory));
  end.source.write({1, 2, 3, 4});
  PortBuffer flushed(1);
  const auto channel = end.service.basePortChannel(0);
  end.service.startProxy();
  runPortBody(1, OneRequestBody<WideTrigger>{channel.deviceHandle(),
                                             PortRequest{TriggerData, id, far, end.src, 8, 16, 0}, flushed.data()});
  runPortBody(1, OneRequestBody<WideTrigger>{channel.deviceHandle(),
                                             PortRequest{TriggerData, end.dst, 0, id, far + 8, 8, 0}, flushed.data()});
  end.service.stopProxy();
  CHECK(flushed.read()[0] == 2);
  CHECK(end.target.read()[0] == 3);
}
