// Inputs of the measurements of GEMMs and norms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/perf/backend.hpp"
#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::fusionbench {

/// Device memory with `count` elements that next() returns: a sequence of 4 Mi bytes, again and again.
template <class T, class Next>
std::shared_ptr<void> repeatedSequence(perf::Backend& backend, std::size_t count, const Next& next) {
  constexpr std::size_t most = (std::size_t{4} << 20) / sizeof(T);
  std::vector<T> sequence(std::min(count, most));
  for (T& value : sequence) value = next();
  auto memory = backend.allocate(count * sizeof(T));
  for (std::size_t at = 0; at < count; at += most) {
    backend.upload(static_cast<T*>(memory.get()) + at, sequence.data(), std::min(most, count - at) * sizeof(T));
  }
  return memory;
}

/// Random numbers in (-1, 1), of BFLOAT16 or FLOAT8_E4M3FN: the sign, an exponent of 2^-1 to 2^-4, and the leading bits
/// of the fraction.
inline std::shared_ptr<void> randomRows(perf::Backend& backend, std::size_t count, std::uint32_t seed,
                                        DataType type = DataType::BFLOAT16) {
  const auto advance = [&] { return seed = seed * 1664525u + 1013904223u; };
  if (type == DataType::BFLOAT16) {
    return repeatedSequence<std::uint16_t>(backend, count, [&] {
      advance();
      return static_cast<std::uint16_t>((seed >> 16 & 0x8000u) | (123u + (seed >> 24 & 3u)) << 7 | (seed >> 8 & 127u));
    });
  }
  return repeatedSequence<std::uint8_t>(backend, count, [&] {
    advance();
    return static_cast<std::uint8_t>((seed >> 24 & 0x80u) | (3u + (seed >> 24 & 3u)) << 3 | (seed >> 8 & 7u));
  });
}

/// Scales of rows of fp8, in [0.5, 1.5).
inline std::shared_ptr<void> randomScales(perf::Backend& backend, std::size_t count, std::uint32_t seed) {
  return repeatedSequence<float>(backend, count, [&] {
    seed = seed * 1664525u + 1013904223u;
    return 0.5f + static_cast<float>(seed >> 8) / static_cast<float>(1 << 24);
  });
}

}  // namespace mscclpp::fusionbench
