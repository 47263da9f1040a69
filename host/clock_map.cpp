#include "clock_map.hpp"

#include <algorithm>
#include <cmath>

namespace mscclpp::detail {

void ClockMap::add(const ClockComparison& comparison) {
  comparisons_.push_back(comparison);
}

std::int64_t ClockMap::map(std::int64_t from) const {
  if (comparisons_.empty()) return from;
  if (comparisons_.size() == 1) return from + (comparisons_[0].to - comparisons_[0].from);
  // The first comparison after `from`, but with one before it and never beyond the last.
  auto after = std::upper_bound(comparisons_.begin() + 1, comparisons_.end() - 1, from,
                                [](std::int64_t time, const ClockComparison& each) { return time < each.from; });
  const ClockComparison& b = *after;
  const ClockComparison& a = *(after - 1);
  // Differences are exact in a double for hours; absolute times are not.
  const auto span = static_cast<double>(b.from - a.from);
  const auto drift = static_cast<double>((b.to - a.to) - (b.from - a.from));
  const double share = span > 0 ? static_cast<double>(from - a.from) / span : 0;
  return from + (a.to - a.from) + std::llround(share * drift);
}

std::int64_t ClockMap::error() const {
  std::int64_t most = 0;
  for (const ClockComparison& each : comparisons_) most = std::max(most, each.error);
  return most;
}

std::int64_t wholeTime(std::uint64_t low48, std::int64_t around) {
  constexpr std::int64_t period = std::int64_t{1} << 48;
  const std::int64_t high = around & ~(period - 1);
  const std::int64_t time = high + static_cast<std::int64_t>(low48);
  if (time - around > period / 2) return time - period;
  if (around - time > period / 2) return time + period;
  return time;
}

}  // namespace mscclpp::detail
