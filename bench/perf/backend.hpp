// The backend of a benchmark: memory and timing on a GPU, or for a CPU rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/timed_calls.hpp"
#include "median.hpp"

namespace mscclpp::perf {

using kernels::Call;
using kernels::skewCalls;
using kernels::TimedCall;
using kernels::TimingOptions;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// The same, memory that other ranks can map.
  virtual std::shared_ptr<void> allocateShareable(std::size_t bytes) { return allocate(bytes); }
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes) = 0;
  /// One call, completed on return.
  virtual void runOnce(const Call& call) = 0;
  /// Makes the warm-up calls. A measurement is `before`, if it is not empty, then calls that absorb skew, then
  /// `timing.calls` calls, which are timed together.
  virtual std::unique_ptr<TimedCall> prepare(const Call& call, const TimingOptions& timing,
                                             const Call& before = {}) = 0;
  /// Makes the warm-up calls. A measurement is `timing.calls` times `before` and `call`, where each `call` is timed
  /// by events around it. On GPUs only: throws Error(InvalidUsage) on a CPU.
  virtual std::unique_ptr<TimedCall> prepareSeparate(const Call& before, const Call& call,
                                                     const TimingOptions& timing) = 0;
  /// The median of the repeats, in microseconds per call.
  double time(const Call& call, const TimingOptions& timing, const std::function<void()>& barrier) {
    const auto timed = prepare(call, timing);
    std::vector<double> microseconds;
    for (int repeat = 0; repeat < timing.repeats; ++repeat) microseconds.push_back(timed->measure(barrier).front());
    return median(std::move(microseconds));
  }
  /// For the header of the table.
  virtual std::string description() const = 0;
  /// The name of the GPU; empty on CPUs.
  virtual std::string deviceName() const = 0;
};

/// The number of GPUs; 0 without GPUs, without a driver, or in a build without CUDA, and then `reason` is set.
int gpuCount(std::string& reason);
/// Makes GPU `index` the current device of this process.
std::unique_ptr<Backend> makeGpuBackend(int index);
/// The calling process, `localRank` of `ranks` on this machine. With a core for each, it is bound to one, as MPI
/// launchers do it.
std::unique_ptr<Backend> makeCpuBackend(int localRank, int ranks);

}  // namespace mscclpp::perf
