// How calls are timed, by the benchmarks and the tuner: a loop on a CPU rank, a graph on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <vector>

struct CUstream_st;

namespace mscclpp::kernels {

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

/// Make the warm-up calls. A measurement is `before`, if it is not empty, then calls that absorb skew, then
/// `timing.calls` calls, which are timed together. Called by all ranks. The stream is one that can be captured, and
/// outlives the result. gpuTimedCall() throws Error(InvalidUsage) in a build without CUDA, else CudaError.
std::unique_ptr<TimedCall> cpuTimedCall(const Call& call, const TimingOptions& timing, const Call& before = {});
std::unique_ptr<TimedCall> gpuTimedCall(CUstream_st* stream, const Call& call, const TimingOptions& timing,
                                        const Call& before = {});

}  // namespace mscclpp::kernels
