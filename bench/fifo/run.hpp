// One case of the FIFO benchmark, whatever the device: the proxy's side, and the choice of the kernel.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/proxy.hpp"
#include "place.hpp"

namespace mscclpp::bench {

/// Device: allocate(bytes) gives memory that it can write, launch(blocks, threads, body) runs and waits, load(word) reads, type, warpWidth.
template <class Trigger, Publish publish, class DeviceType>
Result runCase(DeviceType& device, const Case& each) {
  std::uint64_t popped = 0;
  BasicProxy<Trigger> proxy([&popped](const Trigger&) { ++popped; }, ProxyOptions{.thread = {.device = device.type},
                                                                                  .fifos = each.fifos,
                                                                                  .fifoSize = each.fifoSize,
                                                                                  .popsPerReport = each.popsPerReport});
  Pusher<Trigger, publish> pusher{};
  for (int i = 0; i < each.fifos; ++i) pusher.fifos[i] = proxy.fifo(i)->deviceHandle();
  pusher.fifoCount = each.fifos;
  pusher.form = each.form;
  pusher.pushes = each.pushes;
  pusher.dirtyWords = each.dirtyWords;
  pusher.sync = each.sync;
  const std::size_t words = static_cast<std::size_t>(each.blocks * each.threads * each.dirtyWords);
  const auto memory = device.allocate((words + 1) * sizeof(std::uint64_t));
  pusher.elapsed = static_cast<std::uint64_t*>(memory.get());
  pusher.scratch = pusher.elapsed + 1;
  proxy.start(true);
  const auto start = std::chrono::steady_clock::now();
  device.launch(each.blocks, each.threads, pusher);
  proxy.stop();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  const std::uint64_t expected = pusher.triggers(each.blocks, each.threads, device.warpWidth);
  if (popped != expected) {
    throw Error(std::to_string(popped) + " of " + std::to_string(expected) + " triggers arrived",
                ErrorCode::InternalError);
  }
  return {static_cast<double>(device.load(pusher.elapsed)) / each.pushes,
          static_cast<double>(expected) / passed.count()};
}

template <class Trigger, class DeviceType>
Result runCase(DeviceType& device, const Case& each) {
  switch (each.publish) {
    case Publish::Nothing:
      return runCase<Trigger, Publish::Nothing>(device, each);
    case Publish::Device:
      return runCase<Trigger, Publish::Device>(device, each);
    default:
      return runCase<Trigger, Publish::System>(device, each);
  }
}

template <class DeviceType>
Result runCase(DeviceType& device, const Case& each) {
  return each.wide ? runCase<WideTrigger>(device, each) : runCase<ProxyTrigger>(device, each);
}

}  // namespace mscclpp::bench
