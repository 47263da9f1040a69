// What calls in rounds need whose data is generated on the GPU: a hash, the next round, and ranks that are late.
#pragma once

#include <cstdint>

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::test {

MSCCLPP_INLINE std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185u;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44du;
  return x ^ x >> 33;
}

static __global__ void nextRound(std::uint64_t* round) {
  ++*round;
}

/// Called by all threads.
__device__ inline void spinFor(std::uint64_t nanoseconds) {
  const auto begin = arch::nanoseconds();
  while (arch::nanoseconds() - begin < nanoseconds) {
  }
}
/// Waits up to 60 us, for another time on each rank and in each round.
__device__ inline void beLate(int rank, std::uint64_t round) {
  spinFor(mix(round * 64 + static_cast<std::uint64_t>(rank)) % 60'000);
}

}  // namespace mscclpp::test
