// The backend of a benchmark: memory and timing on a GPU, or for a CPU rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

struct CUstream_st;

namespace mscclpp::perf {

/// The number of calls and repeats of a measurement.
struct TimingOptions {
  int warmup = 20;  ///< calls before the first measurement
  int calls = 50;   ///< calls per measurement; on a GPU captured in one graph
  int repeats = 7;  ///< measurements, of which each rank reports the median
};

/// Enqueues (GPU) or executes (CPU) one call of the measured operation.
using Call = std::function<void(CUstream_st* stream)>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes) = 0;
  /// One call, completed on return.
  virtual void runOnce(const Call& call) = 0;
  /// The median of the repeats, in microseconds per call. `barrier` synchronizes the ranks before each measurement.
  virtual double time(const Call& call, const TimingOptions& timing, const std::function<void()>& barrier) = 0;
  /// For the header of the table.
  virtual std::string description() const = 0;
};

/// The number of GPUs; 0 without GPUs, without a driver, or in a build without CUDA, and then `reason` is set.
int gpuCount(std::string& reason);
/// Makes GPU `index` the current device of this process.
std::unique_ptr<Backend> makeGpuBackend(int index);
/// The calling process, `localRank` of `ranks` on this machine. With a core for each, it is bound to one, as MPI
/// launchers do it.
std::unique_ptr<Backend> makeCpuBackend(int localRank, int ranks);

}  // namespace mscclpp::perf
