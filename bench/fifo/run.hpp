// Runs one case of the FIFO benchmark on any device: the proxy's side, and the choice of the kernel.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "benchmark_case.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/proxy/proxy.hpp"

namespace mscclpp::bench {

/// Device: allocate(bytes) returns memory that the device can write, launch(blocks, threads, body) runs the body and
/// waits, load(word) reads; type, warpWidth.
template <class Trigger, ReleaseScope releaseScope, class DeviceType>
Result runCase(DeviceType& device, const BenchmarkCase& benchmarkCase) {
  std::uint64_t popped = 0;
  BasicProxy<Trigger> proxy([&popped](const Trigger&) { ++popped; },
                            ProxyOptions{.thread = {.device = device.type},
                                         .fifos = benchmarkCase.fifos,
                                         .fifoSize = benchmarkCase.fifoSize,
                                         .popsPerTailUpdate = benchmarkCase.popsPerTailUpdate});
  Pusher<Trigger, releaseScope> pusher{};
  for (int i = 0; i < benchmarkCase.fifos; ++i) pusher.fifos[i] = proxy.fifo(i)->deviceHandle();
  pusher.fifoCount = benchmarkCase.fifos;
  pusher.granularity = benchmarkCase.granularity;
  pusher.pushes = benchmarkCase.pushes;
  pusher.dirtyWords = benchmarkCase.dirtyWords;
  pusher.sync = benchmarkCase.sync;
  const std::size_t words =
      static_cast<std::size_t>(benchmarkCase.blocks * benchmarkCase.threads * benchmarkCase.dirtyWords);
  const auto memory = device.allocate((words + 1) * sizeof(std::uint64_t));
  pusher.elapsed = static_cast<std::uint64_t*>(memory.get());
  pusher.scratch = pusher.elapsed + 1;
  proxy.start(true);
  const auto start = std::chrono::steady_clock::now();
  device.launch(benchmarkCase.blocks, benchmarkCase.threads, pusher);
  proxy.stop();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  const std::uint64_t expected = pusher.triggers(benchmarkCase.blocks, benchmarkCase.threads, device.warpWidth);
  if (popped != expected) {
    throw Error(std::to_string(popped) + " of " + std::to_string(expected) + " triggers arrived",
                ErrorCode::InternalError);
  }
  return {static_cast<double>(device.load(pusher.elapsed)) / benchmarkCase.pushes,
          static_cast<double>(expected) / passed.count()};
}

template <class Trigger, class DeviceType>
Result runCase(DeviceType& device, const BenchmarkCase& benchmarkCase) {
  switch (benchmarkCase.releaseScope) {
    case ReleaseScope::None:
      return runCase<Trigger, ReleaseScope::None>(device, benchmarkCase);
    case ReleaseScope::Device:
      return runCase<Trigger, ReleaseScope::Device>(device, benchmarkCase);
    default:
      return runCase<Trigger, ReleaseScope::System>(device, benchmarkCase);
  }
}

template <class DeviceType>
Result runCase(DeviceType& device, const BenchmarkCase& benchmarkCase) {
  return benchmarkCase.wide ? runCase<WideTrigger>(device, benchmarkCase)
                            : runCase<ProxyTrigger>(device, benchmarkCase);
}

}  // namespace mscclpp::bench
