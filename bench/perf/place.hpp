// Where a benchmark runs: memory and a clock of a GPU, or of a CPU rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

struct CUstream_st;

namespace mscclpp::perf {

/// How a measurement is made.
struct Method {
  int warmup = 20;  ///< calls before the first measurement
  int calls = 50;   ///< calls a measurement: on a GPU captured in one graph
  int repeats = 7;  ///< measurements, of which each rank reports the median
};

/// Enqueues (GPU) or makes (CPU) one call of what is measured.
using Call = std::function<void(CUstream_st* stream)>;

class Place {
 public:
  virtual ~Place() = default;
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes) = 0;
  /// One call, completed on return.
  virtual void once(const Call& call) = 0;
  /// The median of the repeats, in microseconds a call. `together` lines the ranks up before each measurement.
  virtual double time(const Call& call, const Method& method, const std::function<void()>& together) = 0;
  /// For the header of the table.
  virtual std::string description() const = 0;
};

/// GPUs of this machine; 0 if there is none, no driver, or this build has no CUDA. `why` then says which.
int gpuCount(std::string& why);
/// GPU number `index` becomes the current device of this process.
std::unique_ptr<Place> gpuPlace(int index);
/// The calling process, `localRank` of `ranks` on this machine. With a core for each, it is bound to one, as MPI launchers do it.
std::unique_ptr<Place> cpuPlace(int localRank, int ranks);

}  // namespace mscclpp::perf
