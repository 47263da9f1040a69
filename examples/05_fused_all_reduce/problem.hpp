// Inputs of the layer and its expected output.
#pragma once

#include <vector>

#include "example.hpp"
#include "layer.hpp"

namespace example {

/// Multiples of 1/8 in [-1, 1]: small products of them add up exactly, in any order.
inline float valueAt(std::size_t i, std::size_t seed) {
  return static_cast<float>((i * 37 + seed * 11) % 17) / 8.0f - 1.0f;
}

inline std::vector<float> values(std::size_t count, std::size_t seed) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = valueAt(i, seed);
  return result;
}

struct Problem {
  int tokens;
  int width;
  int depth;

  std::size_t elements() const { return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(width); }
  std::size_t packs() const { return (elements() + packSize<float> - 1) / packSize<float>; }
  std::vector<float> input(int rank) const { return values(static_cast<std::size_t>(tokens * depth), 100 + rank); }
  std::vector<float> weight(int rank) const { return values(static_cast<std::size_t>(depth * width), 200 + rank); }
  std::vector<float> residual() const { return values(elements(), 1); }
  std::vector<float> gain() const { return values(static_cast<std::size_t>(width), 2); }

  /// Throws unless `output` is what the layer gives over so many ranks, in double precision.
  void check(const std::vector<float>& output, int ranks) const {
    std::vector<double> hidden(elements());
    const std::vector<float> added = residual(), factors = gain();
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = added[i];
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> x = input(rank), w = weight(rank);
      for (int t = 0; t < tokens; ++t) {
        for (int k = 0; k < depth; ++k) {
          for (int i = 0; i < width; ++i) hidden[t * width + i] += double(x[t * depth + k]) * w[k * width + i];
        }
      }
    }
    for (int t = 0; t < tokens; ++t) {
      double squares = 0;
      for (int i = 0; i < width; ++i) squares += hidden[t * width + i] * hidden[t * width + i];
      for (int i = 0; i < width; ++i) {
        const double expected = hidden[t * width + i] / std::sqrt(squares / width + 1e-6) * factors[i];
        const double got = output[t * width + i];
        require(std::abs(got - expected) <= 1e-5 * (1 + std::abs(expected)),
                "token " + std::to_string(t) + ", element " + std::to_string(i) + " is " + std::to_string(got) +
                    " instead of " + std::to_string(expected));
      }
    }
  }
};

}  // namespace example
