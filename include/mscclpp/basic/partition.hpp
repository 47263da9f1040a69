// How n things are shared out over ranks, blocks and threads, remainders included.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Half-open range [begin, end) of indices.
struct Range {
  std::size_t begin;
  std::size_t end;
  MSCCLPP_INLINE std::size_t size() const { return end - begin; }
};

MSCCLPP_INLINE constexpr std::size_t ceilDivide(std::size_t n, std::size_t parts) {
  return (n + parts - 1) / parts;
}
MSCCLPP_INLINE constexpr std::size_t roundUp(std::size_t n, std::size_t multiple) {
  return ceilDivide(n, multiple) * multiple;
}

/// Part `index` of n things in `parts` parts whose sizes differ by one at most; earlier parts are the larger. Keeps order; empty parts are possible.
MSCCLPP_INLINE constexpr Range evenPart(std::size_t n, std::size_t parts, std::size_t index) {
  const std::size_t base = n / parts;
  const std::size_t extra = n % parts;
  const std::size_t begin = index * base + (index < extra ? index : extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

/// Part `index` of n things in parts of `step` each; the last ones may be short or empty. Part i starts at i * step, so no division is needed.
MSCCLPP_INLINE constexpr Range steppedPart(std::size_t n, std::size_t step, std::size_t index) {
  const std::size_t begin = index * step < n ? index * step : n;
  const std::size_t end = begin + step < n ? begin + step : n;
  return {begin, end};
}

}  // namespace mscclpp
