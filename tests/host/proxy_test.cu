// The cases of the proxy with a GPU that pushes; and a thread near its GPU.
#include <sched.h>

#include "mscclpp/host/numa.hpp"
#include "proxy_cases.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("proxy: near its GPU, and with the GPU current") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  cpu_set_t during;
  CPU_ZERO(&during);
  int device = -1;
  auto options = proxyOptions();
  options.thread.place = ProxyPlace::NearDevice;
  options.thread.threadInit = [&] {
    sched_getaffinity(0, sizeof(during), &during);
    cudaGetDevice(&device);
  };
  Proxy proxy([](ProxyTrigger) {}, options);
  proxy.start(true);
  proxy.stop();
  CHECK(device == 0);
  cpu_set_t both;
  CPU_AND(&both, &before, &during);
  CHECK(CPU_EQUAL(&both, &during));
  CHECK(CPU_COUNT(&during) > 0);
  cpu_set_t after;
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));  // the caller's own affinity is not touched
  CHECK(getDeviceNumaNode(0) >= -1);
}
