// From the time of one clock to that of another, by comparisons of the two.
#pragma once

#include <cstdint>
#include <vector>

namespace mscclpp::detail {

/// What both clocks said at one moment, in nanoseconds; `error`: how far apart the two readings may have been.
struct ClockComparison {
  std::int64_t from;
  std::int64_t to;
  std::int64_t error;
};

/// Linear between comparisons, and on in the same direction outside of them. Without comparisons the clocks are one; with one they differ by an offset.
class ClockMap {
 public:
  /// `from` grows from call to call.
  void add(const ClockComparison& comparison);
  std::int64_t map(std::int64_t from) const;
  /// The largest error of the comparisons.
  std::int64_t error() const;
  /// The time of the last comparison on the first clock; 0 without one.
  std::int64_t last() const { return comparisons_.empty() ? 0 : comparisons_.back().from; }

 private:
  std::vector<ClockComparison> comparisons_;
};

/// The time whose low 48 bits are these and that is nearest to `around`.
std::int64_t wholeTime(std::uint64_t low48, std::int64_t around);

}  // namespace mscclpp::detail
