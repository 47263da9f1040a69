#include "host/trace/clock_map.hpp"

#include <algorithm>
#include <cmath>

namespace mscclpp::detail {

void ClockMap::add(const ClockSample& sample) {
  samples_.push_back(sample);
}

std::int64_t ClockMap::map(std::int64_t from) const {
  if (samples_.empty()) return from;
  if (samples_.size() == 1) return from + (samples_[0].to - samples_[0].from);
  // The first comparison after `from`, but at least the second and at most the last.
  auto after = std::upper_bound(samples_.begin() + 1, samples_.end() - 1, from,
                                [](std::int64_t time, const ClockSample& each) { return time < each.from; });
  const ClockSample& b = *after;
  const ClockSample& a = *(after - 1);
  // Differences are exact in a double for hours; absolute times are not.
  const auto span = static_cast<double>(b.from - a.from);
  const auto drift = static_cast<double>((b.to - a.to) - (b.from - a.from));
  const double share = span > 0 ? static_cast<double>(from - a.from) / span : 0;
  return from + (a.to - a.from) + std::llround(share * drift);
}

std::int64_t ClockMap::error() const {
  std::int64_t most = 0;
  for (const ClockSample& each : samples_) most = std::max(most, each.error);
  return most;
}

std::int64_t unwrapTimestamp(std::uint64_t low48, std::int64_t around) {
  constexpr std::int64_t period = std::int64_t{1} << 48;
  const std::int64_t high = around & ~(period - 1);
  const std::int64_t time = high + static_cast<std::int64_t>(low48);
  if (time - around > period / 2) return time - period;
  if (around - time > period / 2) return time + period;
  return time;
}

}  // namespace mscclpp::detail
