// The cases of the proxy with pushes from a GPU, and the thread's NUMA affinity.
#include <sched.h>

#include "mscclpp/host/cuda/numa.hpp"
#include "proxy_cases.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("proxy: bound to its GPU's NUMA node, with the GPU current") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  cpu_set_t during;
  CPU_ZERO(&during);
  int device = -1;
  auto options = proxyOptions();
  options.thread.affinity = ProxyAffinity::DeviceNumaNode;
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
  CHECK(CPU_EQUAL(&before, &after));  // the caller's affinity is unchanged
  CHECK(getDeviceNumaNode(0) >= -1);
}
