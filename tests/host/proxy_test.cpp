// The cases of the proxy with CPU threads that push.
#include "proxy_cases.hpp"

using namespace mscclpp;

TEST_CASE("proxy: a CPU is near nothing") {
  ProxyOptions options{.thread = {.device = DeviceType::CPU, .place = ProxyPlace::NearDevice}};
  CHECK_THROWS_WITH_AS(Proxy([](ProxyTrigger) {}, options), doctest::Contains("NearDevice"), Error);
}
