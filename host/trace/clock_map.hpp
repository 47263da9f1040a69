// Conversion of one clock's time to another's, by comparisons of the two.
#pragma once

#include <cstdint>
#include <vector>

namespace mscclpp::detail {

/// The readings of both clocks at one moment, in nanoseconds; `error`: the maximum difference in time between them.
struct ClockSample {
  std::int64_t from;
  std::int64_t to;
  std::int64_t error;
};

/// Interpolates linearly between comparisons, and extrapolates outside of them. Without comparisons the clocks are
/// equal; with one they differ by an offset.
class ClockMap {
 public:
  /// `from` must increase from call to call.
  void add(const ClockSample& sample);
  std::int64_t map(std::int64_t from) const;
  /// The largest error of the comparisons.
  std::int64_t error() const;
  /// The time of the last comparison on the first clock; 0 without one.
  std::int64_t last() const { return samples_.empty() ? 0 : samples_.back().from; }

 private:
  std::vector<ClockSample> samples_;
};

/// The time nearest to `around` that has these low 48 bits.
std::int64_t unwrapTimestamp(std::uint64_t low48, std::int64_t around);

}  // namespace mscclpp::detail
