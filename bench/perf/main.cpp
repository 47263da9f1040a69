// mscclpp-perf: times and checks collectives over all GPUs of this machine, one process a GPU, or over CPU ranks.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>

#include "measure.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/process_group.hpp"
#include "options.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::perf;

constexpr int defaultCpuRanks = 4;

/// Where to run, how many ranks, and a sentence that says why.
struct Plan {
  bool onGpu;
  int ranks;
  std::string reason;
};

Plan plan(const Options& options) {
  std::string whyNoGpu;
  const int gpus = options.where == Where::Cpu ? 0 : gpuCount(whyNoGpu);
  if (gpus == 0 && options.where == Where::Gpu) throw Error("no GPU here: " + whyNoGpu, ErrorCode::InvalidUsage);
  if (gpus == 0) {
    const int ranks = options.ranks > 0 ? options.ranks : defaultCpuRanks;
    const std::string because = options.where == Where::Cpu ? "as asked" : "no GPU here (" + whyNoGpu + ")";
    return {false, ranks, fmt::format("{} CPU ranks, a process each: {}", ranks, because)};
  }
  if (options.ranks > gpus) {
    throw Error(fmt::format("{} ranks need a GPU each, and there are {}: give -n {} or less, or --device cpu",
                            options.ranks, gpus, gpus),
                ErrorCode::InvalidUsage);
  }
  const int ranks = options.ranks > 0 ? options.ranks : gpus;
  return {true, ranks, fmt::format("{} GPUs, a process each: {} found", ranks, gpus)};
}

/// Before any rank starts: a long measurement must not end with the news that the trace has no place.
void checkWritable(const std::string& file) {
  if (file.empty()) return;
  const std::ofstream out(file, std::ios::app);
  if (!out) throw SysError("--trace: cannot write " + file, errno);
}

void runRank(const Options& options, bool onGpu, int ranks, ProcessGroup& group) {
  const auto place = onGpu ? gpuPlace(group.localRank()) : cpuPlace(group.localRank(), ranks);
  const std::size_t wrong = measureAllReduce(options, group.connect(), *place, onGpu);
  if (wrong != 0) throw Error(fmt::format("{} wrong elements", wrong), ErrorCode::InternalError);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    int code = 0;
    if (!parse(argc, argv, options, code)) return code;
    const Plan chosen = plan(options);
    const bool isRank = ProcessGroup::fromEnvironment().has_value();
    if (!isRank) checkWritable(options.traceFile);
    if (!isRank && !options.json) {
      fmt::print("# {}\n", chosen.reason);
      std::fflush(stdout);
    }
    return runRanks(chosen.ranks, {argv, argv + argc},
                    [&](ProcessGroup& group) { runRank(options, chosen.onGpu, chosen.ranks, group); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "mscclpp-perf: {}\n", error.what());
    return 1;
  }
}
