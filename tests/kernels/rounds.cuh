// Numbers at random by a hash, and ranks that reach a call at different times.
#pragma once

#include <cstdint>

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::test {

MSCCLPP_HOST_DEVICE inline std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

/// Waits up to 60 us, for another time on each rank and in each round.
__device__ inline void beLate(int rank, std::uint32_t round) {
  const std::uint64_t delay = mix(round * 64 + static_cast<std::uint32_t>(rank)) % 60'000;
  const auto begin = arch::nanoseconds();
  while (arch::nanoseconds() - begin < delay) {
  }
}

}  // namespace mscclpp::test
