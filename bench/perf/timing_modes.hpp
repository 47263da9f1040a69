// The modes of timing: what surrounds a measured call, and what is reported of the samples.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend.hpp"
#include "options.hpp"
#include "rank_group.hpp"
#include "timing_kernels.hpp"

namespace mscclpp::perf {

/// A call on one of several pairs of buffers.
struct TimedOperation {
  std::function<void(std::size_t pair, CUstream_st* stream)> call;
  std::size_t pairs;
  void* input;  ///< of pair 0
  std::size_t inputBytes;
  const void* output;
  std::size_t outputBytes;
};

/// Times calls in the mode of the options.
class ModeTimer {
 public:
  /// kernels: null on CPU ranks, which have TimingMode::Steady only. align: a call that no rank leaves before every
  /// rank has entered it.
  ModeTimer(const Options& options, Backend& backend, TimingKernels* kernels, Call align);

  /// The number of buffer pairs that successive calls use in turn, where a pair has this many bytes.
  std::size_t pairs(std::size_t bytes) const;
  std::unique_ptr<TimedCall> prepare(const TimedOperation& operation) const;

 private:
  const Options& options_;
  Backend& backend_;
  TimingKernels* kernels_;
  Call align_;
  std::shared_ptr<void> evicting_;  ///< rotated: writing it leaves nothing else in the L2 cache
};

/// Microseconds of a call.
struct Timing {
  double slowest;  ///< maximum over the ranks; what is reported
  double fastest;  ///< minimum over the ranks
};

/// From each rank's samples, as many on every rank. Called by all ranks. Skewed: the extrema over the ranks of each
/// replay, and of these the medians. Otherwise the extrema over the ranks of each rank's median.
Timing summarize(TimingMode mode, const std::vector<double>& samples, const RankGroup& group);

}  // namespace mscclpp::perf
