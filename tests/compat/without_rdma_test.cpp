// Lookups of network devices in a build without verbs, which find none. Always linked with the functions of such a
// build.
#include <doctest/doctest.h>

#include <mscclpp/utils.hpp>

using namespace mscclpp;

TEST_CASE("compat host: without verbs, lookups of network devices find nothing") {
  CHECK(getIBDeviceCount() == 0);
  CHECK(getIBDeviceName(Transport::IB0) == "");
  CHECK(getIBTransportByDeviceName("mlx5_0") == Transport::Unknown);
  CHECK_THROWS_AS(nearestIBTransport(DeviceType::CPU), Error);
}
