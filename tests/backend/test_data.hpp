// Test data: random bits with special values, and comparison of whole buffers.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "mscclpp/basic/element.hpp"

namespace mscclpp::test {

/// The value of every byte that has not been written.
inline constexpr int poisonByte = 0xa5;

/// Random bits: every value of T, NaNs included.
template <class T>
std::vector<T> randomBits(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> data(count);
  auto* bytes = reinterpret_cast<unsigned char*>(data.data());
  for (std::size_t i = 0; i < count * sizeof(T); ++i) bytes[i] = static_cast<unsigned char>(random() >> 32);
  return data;
}

/// Random values: about a quarter of them random bits, the others small, so that sums are finite; with zeros of both
/// signs, NaN and infinities.
template <class T>
std::vector<T> randomElements(std::size_t count, unsigned seed) {
  std::vector<T> data = randomBits<T>(count, seed);
  std::mt19937_64 random(seed + 1);
  for (auto& value : data) {
    const auto kind = random() % 32;
    if (kind < 8) continue;
    const double number = static_cast<double>(random() % 4001) / 256 - 7;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(static_cast<std::int64_t>(number));
    } else {
      const float special[] = {0.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
      value = narrow<T>(static_cast<Accumulator<T>>(kind < 13 ? static_cast<double>(special[kind - 8]) : number));
    }
  }
  return data;
}

/// The index of the first byte that differs, or -1.
template <class T>
std::ptrdiff_t firstDifference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return 0;
  const auto* left = reinterpret_cast<const unsigned char*>(a.data());
  const auto* right = reinterpret_cast<const unsigned char*>(b.data());
  for (std::size_t i = 0; i < a.size() * sizeof(T); ++i) {
    if (left[i] != right[i]) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

}  // namespace mscclpp::test
