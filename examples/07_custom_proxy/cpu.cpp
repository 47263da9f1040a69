// 07 in emulation: CPU threads run the device code.
#include <atomic>
#include <cstdio>
#include <exception>

#include "example.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "service.hpp"

int main() {
  try {
    constexpr int blocks = 2, threads = 4;
    example::CustomProxyService service(mscclpp::DeviceType::CPU);
    service.startProxy();
    std::atomic<int> served = 0;
    const auto fifo = service.fifo();
    mscclpp::emulation::launch({1, blocks, threads},
                               [&](int, const auto&) { served += example::makeRequests(fifo) ? 1 : 0; });
    service.stopProxy();
    constexpr int all = blocks * threads;
    example::require(served == all && service.ones() == all && service.twos() == all && service.deadbeefs() == all,
                     "requests were lost");
    std::printf("%d threads made 3 requests each: all served\n", all);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
