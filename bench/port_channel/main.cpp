// Times port channels between two ranks, one process each: latency, bandwidth, and a breakdown of host calls.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "measure.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "options.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

int main(int argc, char** argv) {
  try {
    Options options;
    if (const auto exitCode = parse(argc, argv, options)) return *exitCode;
    const int gpus = options.device == "cpu" ? 0 : gpuCount();
    const bool onGpu = gpus >= (options.oneGpu ? 1 : 2);
    if (!onGpu && options.device == "gpu") {
      fmt::print(stderr, "port_channel: needs two GPUs, or one with --one-gpu; found {}\n", gpus);
      return 1;
    }
    return runRanks(2, {argv, argv + argc}, [&](ProcessGroup& group) {
      const auto backend = onGpu ? makeGpuBackend(options.oneGpu ? 0 : group.localRank()) : makeCpuBackend();
      measure(options, group.connect(), *backend);
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "port_channel: {}\n", error.what());
    return 1;
  }
}
