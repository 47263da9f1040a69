// Inputs of the layer and its expected output, computed serially in double precision.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlp.hpp"

namespace example {

struct Problem {
  Sizes sizes;
  int ranks;

  std::size_t slice() const { return ceilDivide(sizes.tokens, static_cast<std::size_t>(ranks)); }
  Range tokensOf(int rank) const { return steppedPart(sizes.tokens, slice(), static_cast<std::size_t>(rank)); }

  /// Multiples of 1/64 in [-1/8, 1/8].
  static std::vector<bf16> values(std::size_t count, std::size_t seed) {
    std::vector<bf16> result(count);
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = narrow<bf16>(static_cast<float>((i * 37 + seed * 11 + i / 13) % 17) / 64.0f - 0.125f);
    }
    return result;
  }
  std::vector<bf16> gateUp(int rank) const {
    return values(2 * sizes.inner * sizes.hidden, 100 + static_cast<std::size_t>(rank));
  }
  std::vector<bf16> down(int rank) const {
    return values(sizes.hidden * sizes.inner, 200 + static_cast<std::size_t>(rank));
  }
  std::vector<bf16> gain() const { return values(sizes.hidden, 2); }
  std::vector<bf16> inputs() const { return values(sizes.tokens * sizes.hidden, 3); }
  std::vector<bf16> residuals() const { return values(sizes.tokens * sizes.hidden, 4); }
  /// The rows of a rank.
  std::vector<bf16> rowsOf(int rank, const std::vector<bf16>& all) const {
    const Range rows = tokensOf(rank);
    const auto at = [&](std::size_t row) { return all.begin() + static_cast<std::ptrdiff_t>(row * sizes.hidden); };
    return {at(rows.begin), at(rows.end)};
  }

  /// The new residual and the norm of every token. Only activations are rounded, as they are on all ranks.
  struct Expected {
    std::vector<double> residual, norm;
  };
  Expected expected() const {
    const std::size_t tokens = sizes.tokens, hidden = sizes.hidden, inner = sizes.inner;
    const auto x = inputs(), added = residuals(), factors = gain();
    Expected result{std::vector<double>(tokens * hidden), std::vector<double>(tokens * hidden)};
    for (std::size_t i = 0; i < tokens * hidden; ++i) result.residual[i] = widen<bf16>(added[i]);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto first = gateUp(rank), second = down(rank);
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto dot = [&](const bf16* row) {
          double sum = 0;
          for (std::size_t k = 0; k < hidden; ++k) sum += double{widen<bf16>(x[t * hidden + k])} * widen<bf16>(row[k]);
          return sum;
        };
        for (std::size_t j = 0; j < inner; ++j) {
          const double gate = dot(&first[2 * j * hidden]), up = dot(&first[(2 * j + 1) * hidden]);
          const double activation = widen<bf16>(narrow<bf16>(static_cast<float>(gate / (1 + std::exp(-gate)) * up)));
          for (std::size_t i = 0; i < hidden; ++i) {
            result.residual[t * hidden + i] += activation * widen<bf16>(second[i * inner + j]);
          }
        }
      }
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      double squares = 0;
      for (std::size_t i = 0; i < hidden; ++i) squares += std::pow(result.residual[t * hidden + i], 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
      for (std::size_t i = 0; i < hidden; ++i) {
        result.norm[t * hidden + i] = result.residual[t * hidden + i] * scale * widen<bf16>(factors[i]);
      }
    }
    return result;
  }

  /// Throws unless the outputs of a rank are as expected, up to a few roundings.
  void check(int rank, const Expected& wanted, const std::vector<bf16>& newResidual,
             const std::vector<bf16>& output) const {
    const std::size_t first = tokensOf(rank).begin * sizes.hidden;
    double largest = 0, largestNorm = 0;
    for (const double value : wanted.residual) largest = std::fmax(largest, std::fabs(value));
    for (const double value : wanted.norm) largestNorm = std::fmax(largestNorm, std::fabs(value));
    const auto compare = [&](const char* what, std::size_t i, bf16 got, double expected, double bound) {
      if (std::fabs(double{widen<bf16>(got)} - expected) <= bound) return;
      throw std::runtime_error("rank " + std::to_string(rank) + ", " + what + " " + std::to_string(i / sizes.hidden) +
                               ", element " + std::to_string(i % sizes.hidden) + " is " +
                               std::to_string(widen<bf16>(got)) + " instead of " + std::to_string(expected));
    };
    for (std::size_t i = 0; i < newResidual.size(); ++i) {
      // The parts of the ranks, their sum, the sum with the residual; and a rounding that went the other way.
      compare("residual", i, newResidual[i], wanted.residual[first + i], (ranks + 3) * largest / 256);
      compare("token", i, output[i], wanted.norm[first + i], (ranks + 5) * largestNorm / 256);
    }
  }
};

}  // namespace example
