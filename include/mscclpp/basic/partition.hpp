// Partitions of n items among ranks, blocks and threads, for any n.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The indices [begin, end).
struct Range {
  std::size_t begin;
  std::size_t end;
  MSCCLPP_INLINE constexpr std::size_t size() const { return end - begin; }
};

MSCCLPP_INLINE constexpr std::size_t ceilDivide(std::size_t n, std::size_t parts) {
  return (n + parts - 1) / parts;
}
MSCCLPP_INLINE constexpr std::size_t roundUp(std::size_t n, std::size_t multiple) {
  return ceilDivide(n, multiple) * multiple;
}

/// Part `index` of n items split into `parts` consecutive parts, whose sizes differ by at most 1, the larger first.
/// Parts may be empty.
MSCCLPP_INLINE constexpr Range evenPart(std::size_t n, std::size_t parts, std::size_t index) {
  const std::size_t base = n / parts;
  const std::size_t extra = n % parts;
  const std::size_t begin = index * base + (index < extra ? index : extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

/// Part `index` of n items split into consecutive parts of `step` items; the last ones may be shorter or empty. Needs
/// no division.
MSCCLPP_INLINE constexpr Range steppedPart(std::size_t n, std::size_t step, std::size_t index) {
  const std::size_t begin = index * step < n ? index * step : n;
  const std::size_t end = begin + step < n ? begin + step : n;
  return {begin, end};
}

}  // namespace mscclpp
