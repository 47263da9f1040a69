// Times pushes into the FIFO of a proxy by one thread, by warps and by many blocks, on a GPU or on CPU threads.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <vector>

#include "bench/json_line.hpp"
#include "benchmark_case.hpp"
#include "trigger_options.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::bench;

const cli::NameMap<PushGranularity> granularities{{"thread", PushGranularity::Thread},
                                                  {"warp", PushGranularity::Warp},
                                                  {"every_thread", PushGranularity::EveryThread}};
const cli::NameMap<int> syncs{{"no", 0}, {"each", 1}};

struct Options {
  std::string device = "auto";
  std::vector<PushGranularity> granularities{PushGranularity::Thread, PushGranularity::Warp};
  std::vector<ReleaseScope> releaseScopes{ReleaseScope::None, ReleaseScope::Device, ReleaseScope::System};
  std::vector<int> wide{0};
  std::vector<int> sync{0};
  std::vector<int> blocks{1};
  std::vector<int> threads{32};
  std::vector<int> fifos{1};
  std::vector<int> sizes{512};
  std::vector<int> popsPerTailUpdate{1};
  std::vector<int> dirtyWords{0};
  int pushes = 10000;
  int repeats = 7;
  bool json = false;
};

std::vector<BenchmarkCase> casesOf(const Options& options) {
  std::vector<BenchmarkCase> cases;
  const auto forEach = [](const auto& values, const auto& body) {
    for (const auto value : values) body(value);
  };
  forEach(options.wide, [&](int wide) {
    forEach(options.granularities, [&](PushGranularity granularity) {
      forEach(options.releaseScopes, [&](ReleaseScope releaseScope) {
        forEach(options.sync, [&](int sync) {
          forEach(options.blocks, [&](int blocks) {
            forEach(options.threads, [&](int threads) {
              forEach(options.fifos, [&](int fifos) {
                forEach(options.sizes, [&](int size) {
                  forEach(options.popsPerTailUpdate, [&](int pops) {
                    forEach(options.dirtyWords, [&](int dirty) {
                      cases.push_back({granularity, releaseScope, wide != 0, sync != 0, blocks, threads, fifos, size,
                                       pops, dirty, options.pushes});
                    });
                  });
                });
              });
            });
          });
        });
      });
    });
  });
  return cases;
}

/// Returns the exit code if the program ends here.
std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times pushes into the FIFO of a proxy. Options with lists measure every combination.");
  commandLine.add("--device", options.device, "auto, gpu or cpu").oneOf({"auto", "gpu", "cpu"});
  commandLine.addNamed("--granularity", options.granularities, granularities,
                       "which threads of a block push: thread (one), warp (all lanes at once), every_thread");
  addTriggerOptions(commandLine, "push", options.releaseScopes, options.wide);
  commandLine.addNamed("--sync", options.sync, syncs, "wait until each trigger is popped: no, each");
  commandLine.add("--blocks", options.blocks, "blocks of the launch").range(1, 4096);
  commandLine.add("--threads", options.threads, "threads per block, a multiple of the warp size").range(1, 1024);
  commandLine.add("--fifos", options.fifos, "FIFOs of the proxy, assigned to the blocks round-robin")
      .range(1, maxFifos);
  commandLine.add("--fifo-size", options.sizes, "slots of a FIFO, a power of two");
  commandLine.add("--pops-per-tail-update", options.popsPerTailUpdate, "pops per update of the device's tail");
  commandLine.add("--dirty", options.dirtyWords, "8-byte words that each thread writes before each push")
      .range(0, 1024);
  commandLine.add("--pushes", options.pushes, "pushes per pusher").range(1, 100'000'000);
  commandLine.add("--repeats", options.repeats, "runs per line; their median is reported").range(1, 1000);
  commandLine.addFlag("--json", options.json, "print one line of JSON per case instead of the table");
  return commandLine.parse(argc, argv);
}

Result medianOf(std::vector<Result> results) {
  const auto middle = results.begin() + static_cast<std::ptrdiff_t>(results.size() / 2);
  std::nth_element(results.begin(), middle, results.end(),
                   [](const Result& a, const Result& b) { return a.nanosecondsPerPush < b.nanosecondsPerPush; });
  return *middle;
}

void report(const Options& options, const BenchmarkCase& benchmarkCase, const Result& result) {
  const auto granularity = nameOfValue(granularities, benchmarkCase.granularity);
  const auto releaseScope = nameOfValue(releaseScopes, benchmarkCase.releaseScope);
  const auto layout = nameOfValue(triggerLayouts, benchmarkCase.wide ? 1 : 0);
  if (options.json) {
    fmt::print("{}\n", JsonLine()
                           .add("bench", "fifo")
                           .add("granularity", granularity)
                           .add("releaseScope", releaseScope)
                           .add("trigger", layout)
                           .add("sync", benchmarkCase.sync)
                           .add("blocks", benchmarkCase.blocks)
                           .add("threads", benchmarkCase.threads)
                           .add("fifos", benchmarkCase.fifos)
                           .add("fifoSize", benchmarkCase.fifoSize)
                           .add("popsPerTailUpdate", benchmarkCase.popsPerTailUpdate)
                           .add("dirtyWords", benchmarkCase.dirtyWords)
                           .add("pushes", benchmarkCase.pushes)
                           .add("nsPerPush", result.nanosecondsPerPush)
                           .add("millionTriggersPerSecond", result.triggersPerMicrosecond)
                           .text());
  } else {
    fmt::print("{:>12} {:>8} {:>8} {:>5} {:>7} {:>8} {:>6} {:>6} {:>5} {:>6} {:>12.1f} {:>14.3f}\n", granularity,
               releaseScope, layout, benchmarkCase.sync ? "each" : "no", benchmarkCase.blocks, benchmarkCase.threads,
               benchmarkCase.fifos, benchmarkCase.fifoSize, benchmarkCase.popsPerTailUpdate, benchmarkCase.dirtyWords,
               result.nanosecondsPerPush, result.triggersPerMicrosecond);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    if (const auto exitCode = parse(argc, argv, options)) return *exitCode;
    const std::string gpu = options.device == "cpu" ? "" : gpuName();
    if (gpu.empty() && options.device == "gpu") {
      fmt::print(stderr, "fifo: no GPU found\n");
      return 1;
    }
    if (!options.json) {
      fmt::print("# pushes into the FIFO on {}; {} per pusher, median of {}\n", gpu.empty() ? "CPU threads" : gpu,
                 options.pushes, options.repeats);
      fmt::print("# {:>10} {:>8} {:>8} {:>5} {:>7} {:>8} {:>6} {:>6} {:>5} {:>6} {:>12} {:>14}\n", "granularity",
                 "release", "trigger", "sync", "blocks", "threads", "fifos", "slots", "pops", "dirty", "ns/push",
                 "M triggers/s");
    }
    for (const BenchmarkCase& benchmarkCase : casesOf(options)) {
      std::vector<Result> results;
      for (int repeat = 0; repeat < options.repeats; ++repeat) {
        results.push_back(gpu.empty() ? runOnCpu(benchmarkCase) : runOnGpu(benchmarkCase));
      }
      report(options, benchmarkCase, medianOf(std::move(results)));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fifo: {}\n", error.what());
    return 1;
  }
}
