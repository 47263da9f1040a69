// The backend of a benchmark: memory and timing on a GPU, or for a CPU rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "median.hpp"

struct CUstream_st;

namespace mscclpp::perf {

/// The number of calls and repeats of a measurement.
struct TimingOptions {
  int warmup = 20;  ///< calls before the first measurement
  int calls = 50;   ///< calls per measurement; on a GPU captured in one graph
  int repeats = 7;  ///< measurements, of which each rank reports the median
};

/// Calls that absorb the skew between the ranks' launches, right before each measurement on a GPU.
inline constexpr int skewCalls = 10;

/// Enqueues (GPU) or executes (CPU) one call of the measured operation.
using Call = std::function<void(CUstream_st* stream)>;

/// A call that is ready to be timed.
class TimedCall {
 public:
  virtual ~TimedCall() = default;
  /// Measures once; microseconds per call, one value or as many as calls were timed separately. Called by all ranks,
  /// which `barrier` synchronizes.
  virtual std::vector<double> measure(const std::function<void()>& barrier) = 0;
};

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
