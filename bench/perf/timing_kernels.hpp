// The kernels that surround a measured call, for the modes of timing that have them; on GPUs only.
#pragma once

#include <cstddef>
#include <memory>

struct CUstream_st;

namespace mscclpp::perf {

/// All functions enqueue one kernel on a stream, which graphs can capture.
class TimingKernels {
 public:
  virtual ~TimingKernels() = default;
  /// Busy for a random time of 0 to 10 us, another one in each execution.
  virtual void delay(CUstream_st* stream) = 0;
  /// Writes all bytes.
  virtual void produce(void* to, std::size_t bytes, CUstream_st* stream) = 0;
  /// Reads all bytes.
  virtual void consume(const void* from, std::size_t bytes, CUstream_st* stream) = 0;
  /// Bytes of the L2 cache.
  virtual std::size_t cacheBytes() const = 0;
};

/// For the current device. Ranks have different delays.
std::unique_ptr<TimingKernels> makeTimingKernels(int rank);

}  // namespace mscclpp::perf
