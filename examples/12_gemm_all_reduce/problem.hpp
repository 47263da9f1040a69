// Inputs of the layer and its expected output.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "layer.hpp"

namespace example {

struct Problem {
  std::size_t tokens, width, depth;

  /// Multiples of 1/8 in [-1, 1].
  static std::vector<bf16> values(std::size_t count, std::size_t seed) {
    std::vector<bf16> result(count);
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = narrow<bf16>(static_cast<float>((i * 37 + seed * 11) % 17) / 8.0f - 1.0f);
    }
    return result;
  }
  std::vector<bf16> input(int rank) const { return values(tokens * depth, 100 + static_cast<std::size_t>(rank)); }
  std::vector<bf16> weight(int rank) const { return values(width * depth, 200 + static_cast<std::size_t>(rank)); }
  std::vector<bf16> gain() const { return values(width, 2); }
  std::vector<bf16> residual() const { return values(tokens * width, 1); }

  /// Throws unless `output` is what the layer gives over so many ranks, computed in double precision: every rank's part
  /// is rounded to bfloat16 once, the sum once, the hidden state once, and the output once.
  void check(const std::vector<bf16>& output, int ranks) const {
    std::vector<double> sums(tokens * width);
    double bound = 0;  // of what rounding the parts may change
    for (int rank = 0; rank < ranks; ++rank) {
      const auto x = input(rank), w = weight(rank);
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t i = 0; i < width; ++i) {
          double sum = 0;
          for (std::size_t k = 0; k < depth; ++k) {
            sum += double{widen<bf16>(x[t * depth + k])} * widen<bf16>(w[i * depth + k]);
          }
          sums[t * width + i] += sum;
          bound = std::fmax(bound, std::fabs(sum));
        }
      }
    }
    const auto added = residual(), factors = gain();
    for (std::size_t t = 0; t < tokens; ++t) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        sums[t * width + i] += widen<bf16>(added[t * width + i]);
        squares += sums[t * width + i] * sums[t * width + i];
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon);
      for (std::size_t i = 0; i < width; ++i) {
        const double expected = sums[t * width + i] * scale * widen<bf16>(factors[i]);
        const double got = widen<bf16>(output[t * width + i]);
        if (!(std::fabs(got - expected) <= (ranks + 3) * bound * scale / 256 + std::fabs(expected) / 64)) {
          throw std::runtime_error("token " + std::to_string(t) + ", element " + std::to_string(i) + " is " +
                                   std::to_string(got) + " instead of " + std::to_string(expected));
        }
      }
    }
  }
};

}  // namespace example
