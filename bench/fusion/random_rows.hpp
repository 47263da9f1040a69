// Inputs of the measurements of GEMMs and norms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/perf/backend.hpp"

namespace mscclpp::fusionbench {

/// Device memory with random numbers of bfloat16 in (-1, 1): a sequence of 4 MiB, again and again.
inline std::shared_ptr<void> randomRows(perf::Backend& backend, std::size_t count, std::uint32_t seed) {
  constexpr std::size_t most = 2 << 20;
  std::vector<std::uint16_t> sequence(std::min(count, most));
  for (auto& value : sequence) {
    seed = seed * 1664525u + 1013904223u;
    // The sign, an exponent of 2^-1 to 2^-4, and the leading bits of the fraction.
    value = static_cast<std::uint16_t>((seed >> 16 & 0x8000u) | (123u + (seed >> 24 & 3u)) << 7 | (seed >> 8 & 127u));
  }
  auto memory = backend.allocate(count * sizeof(std::uint16_t));
  for (std::size_t at = 0; at < count; at += most) {
    backend.upload(static_cast<std::uint16_t*>(memory.get()) + at, sequence.data(),
                   std::min(most, count - at) * sizeof(std::uint16_t));
  }
  return memory;
}

}  // namespace mscclpp::fusionbench
