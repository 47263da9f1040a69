// mscclpp-perf: times and checks collectives over all GPUs of this machine, one process per GPU, or over CPU ranks.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "kernels/tuning_table.hpp"
#include "measure.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "options.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::perf;

constexpr int defaultCpuRanks = 4;

/// The device type, the number of ranks, and the reason for the choice.
struct LaunchPlan {
  bool onGpu;
  int ranks;
  std::string reason;
};

LaunchPlan plan(const Options& options) {
  std::string noGpuReason;
  const int gpus = options.device == DeviceSelection::Cpu ? 0 : gpuCount(noGpuReason);
  if (gpus == 0 && options.device == DeviceSelection::Gpu)
    throw Error("no GPU available: " + noGpuReason, ErrorCode::InvalidUsage);
  if (gpus == 0) {
    const int ranks = options.ranks > 0 ? options.ranks : defaultCpuRanks;
    const std::string reason =
        options.device == DeviceSelection::Cpu ? "requested by --device" : "no GPU available (" + noGpuReason + ")";
    return {false, ranks, fmt::format("{} CPU ranks, one process each: {}", ranks, reason)};
  }
  if (options.ranks > gpus) {
    throw Error(fmt::format("{} ranks need one GPU each, but only {} are available: use -n {} or less, or --device cpu",
                            options.ranks, gpus, gpus),
                ErrorCode::InvalidUsage);
  }
  const int ranks = options.ranks > 0 ? options.ranks : gpus;
  return {true, ranks, fmt::format("{} GPUs, one process each; {} found", ranks, gpus)};
}

/// Called before any rank starts, so that a long measurement does not fail at its end because of a bad path.
void checkWritable(const std::string& file, const std::string& option) {
  if (file.empty()) return;
  const bool isNew = !std::filesystem::exists(file);
  const std::ofstream out(file, std::ios::app);
  if (!out) throw SysError(option + ": cannot write " + file, errno);
  if (isNew) std::filesystem::remove(file);
}

/// What depends on the device or on the number of ranks. Called before any rank starts.
void checkPlan(const Options& options, const LaunchPlan& plan) {
  if (options.root >= plan.ranks) {
    throw Error(fmt::format("--root {}: there are {} ranks, 0 to {}", options.root, plan.ranks, plan.ranks - 1),
                ErrorCode::InvalidUsage);
  }
  if (plan.onGpu) return;
  if (options.mode != TimingMode::Steady) {
    throw Error(fmt::format("--mode {} needs GPUs: CPU ranks are timed with --mode steady only", nameOf(options.mode)),
                ErrorCode::InvalidUsage);
  }
  if (options.nccl) throw Error("--nccl needs GPUs: leave it out for CPU ranks", ErrorCode::InvalidUsage);
}

void runRank(const Options& options, bool onGpu, int ranks, ProcessGroup& group) {
  const auto backend = onGpu ? makeGpuBackend(group.localRank()) : makeCpuBackend(group.localRank(), ranks);
  const auto data = onGpu ? makeGpuTestData() : makeCpuTestData();
  const auto kernels = onGpu ? makeTimingKernels(group.localRank()) : nullptr;
  const DeviceType type = onGpu ? DeviceType::GPU : DeviceType::CPU;
  const std::size_t wrong = measure(options, group.connect(), {type, *backend, *data, kernels.get()});
  if (wrong != 0) throw Error(fmt::format("{} elements of the results are wrong", wrong), ErrorCode::InternalError);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    if (const auto exitCode = parse(argc, argv, options)) return *exitCode;
    const LaunchPlan chosen = plan(options);
    checkPlan(options, chosen);
    const bool isRank = ProcessGroup::fromEnvironment().has_value();
    if (!isRank) checkWritable(options.traceFile, "--trace");
    if (!isRank && !options.tuningFile.empty()) {
      kernels::TuningTable::requireUsable(options.tuningFile);
      checkWritable(options.tuningFile, "--tune");
    }
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
