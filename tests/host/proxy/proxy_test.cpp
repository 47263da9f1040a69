// The cases of the proxy with CPU threads that push.
#include "proxy_cases.hpp"

using namespace mscclpp;

TEST_CASE("proxy: a CPU rank has no NUMA node to bind to") {
  ProxyOptions options{.thread = {.device = DeviceType::CPU, .affinity = ProxyAffinity::DeviceNumaNode}};
  CHECK_THROWS_WITH_AS(Proxy([](ProxyTrigger) {}, options), doctest::Contains("DeviceNumaNode"), Error);
}
