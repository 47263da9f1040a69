#include "mscclpp/host/base/transport.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <type_traits>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/transport/endpoint.hpp"

using namespace mscclpp;

static_assert((Transport::CudaIpc | Transport::IB3).has(Transport::IB3));
static_assert(std::is_trivially_copyable_v<TransportFlags>);

TEST_CASE("a set of transports") {
  CHECK(NoTransports.none());
  CHECK(TransportFlags(Transport::Unknown).none());
  CHECK(AllTransports.all());
  CHECK(AllTransports.count() == 11);
  CHECK(AllIBTransports.count() == 8);
  CHECK((AllIBTransports & Transport::IB7) == TransportFlags(Transport::IB7));
  CHECK((AllIBTransports ^ Transport::IB0).count() == 7);
  CHECK(~AllTransports == NoTransports);
  CHECK_FALSE((~Transport::CudaIpc).has(Transport::CudaIpc));
  CHECK((~Transport::CudaIpc).has(Transport::SharedMemory));
  CHECK((Transport::CudaIpc & Transport::SharedMemory).none());
  CHECK((Transport::CudaIpc | Transport::SharedMemory).toBitset().count() == 2);
  TransportFlags flags;
  flags |= Transport::Ethernet;
  CHECK(flags.any());
  CHECK(flags != NoTransports);
}

TEST_CASE("transports and devices have names") {
  std::ostringstream text;
  text << Transport::CudaIpc << ' ' << Transport::IB5 << ' ' << Transport::SharedMemory << ' ' << Transport::Unknown
       << ' ' << Device(DeviceType::GPU, 3) << ' ' << DeviceType::CPU;
  CHECK(text.str() == "IPC IB5 SHM UNK GPU 3 CPU");
  CHECK(nameOf(Transport::CudaIpc | Transport::Ethernet) == "CudaIpc|Ethernet");
  CHECK(nameOf(Transport::SharedMemory) + nameOf(Transport::IB7) + nameOf(Transport::Unknown) ==
        "SharedMemoryIB7Unknown");
  CHECK(nameOf(NoTransports) == "none");
}

TEST_CASE("an endpoint configuration is created as in MSCCL++ programs") {
  const EndpointConfig implicit = Transport::CudaIpc;
  CHECK(implicit.device == Device(DeviceType::GPU, -1));
  const EndpointConfig braced{Transport::IB0, {DeviceType::GPU, 2}};
  CHECK(braced.device.id == 2);
  CHECK(braced.maxWriteQueueSize == -1);
  CHECK(EndpointConfig(Transport::SharedMemory).device == Device(DeviceType::CPU));
  CHECK(EndpointConfig().transport == Transport::Unknown);
}
