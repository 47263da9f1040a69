// mscclpp-perf: times and checks collectives over all GPUs of this machine, one process per GPU, over CPU ranks, or
// over ranks that share a GPU.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/tuning_table.hpp"
#include "measure.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "options.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::perf;

constexpr int defaultCpuRanks = 4;
constexpr int defaultRanksOfOneGpu = 2;

/// The device type, the number of ranks, and the reason for the choice.
struct LaunchPlan {
  bool onGpu;
  int ranks;
  std::string reason;
};

LaunchPlan plan(const Options& options) {
  std::string noGpuReason;
  const int gpus = options.device == DeviceSelection::Cpu ? 0 : gpuCount(noGpuReason);
  if (gpus == 0 && (options.device == DeviceSelection::Gpu || options.oneGpu))
    throw Error("no GPU available: " + noGpuReason, ErrorCode::InvalidUsage);
  if (gpus == 0) {
    const int ranks = options.ranks > 0 ? options.ranks : defaultCpuRanks;
    const std::string reason =
        options.device == DeviceSelection::Cpu ? "requested by --device" : "no GPU available (" + noGpuReason + ")";
    return {false, ranks, fmt::format("{} CPU ranks, one process each: {}", ranks, reason)};
  }
  if (options.oneGpu) {
    const int ranks = options.ranks > 0 ? options.ranks : defaultRanksOfOneGpu;
    return {true, ranks, fmt::format("{} ranks on one GPU, threads of one process: no links", ranks)};
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

/// A rank of this machine, number `localRank` of `ranks`.
void runRank(const Options& options, bool onGpu, int localRank, int ranks, std::shared_ptr<Bootstrap> bootstrap) {
  const int gpu = options.oneGpu ? 0 : localRank;
  const auto backend = onGpu ? makeGpuBackend(gpu) : makeCpuBackend(localRank, ranks);
  const auto data = onGpu ? makeGpuTestData() : makeCpuTestData();
  const auto kernels = onGpu ? makeTimingKernels(gpu) : nullptr;
  const DeviceType type = onGpu ? DeviceType::GPU : DeviceType::CPU;
  const std::size_t wrong = measure(options, std::move(bootstrap), {type, *backend, *data, kernels.get()});
  if (wrong != 0) throw Error(fmt::format("{} elements of the results are wrong", wrong), ErrorCode::InternalError);
}

/// Runs the ranks as threads: kernels of several processes would take turns on the GPU. Throws the failure that came
/// first; the others follow from it.
void runOnOneGpu(const Options& options, int ranks) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
        bootstrap->initialize(id);
        runRank(options, true, rank, ranks, bootstrap);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  for (std::jthread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    if (const auto exitCode = parse(argc, argv, options)) return *exitCode;
    // A kernel that is loaded at its first launch waits for those of other ranks, which wait for it.
    if (options.oneGpu) ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
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
    if (options.oneGpu) {
      runOnOneGpu(options, chosen.ranks);
      return 0;
    }
    return runRanks(chosen.ranks, {argv, argv + argc}, [&](ProcessGroup& group) {
      runRank(options, chosen.onGpu, group.localRank(), chosen.ranks, group.connect());
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "mscclpp-perf: {}\n", error.what());
    return 1;
  }
}
