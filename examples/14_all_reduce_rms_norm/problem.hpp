// 14: all-reduce, residual, RMSNorm and quantisation to fp8 as one call of the library; inputs and the expected result.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "example.hpp"
#include "mscclpp/fusion/all_reduce_rms_norm.hpp"

namespace example {

using namespace mscclpp;

/// packs: 16-byte packs of a row that a thread holds, 0 for what GPUs need.
template <int packs>
using NormCollective = AllReduceRmsNorm<bf16, AllReduceRmsNormConfig{Protocol::Sentinel, Pattern::OneShot, 0,
                                                                     Quantisation::Fp8PerRow, packs}>;

inline constexpr float epsilon = 1e-6f;

struct Problem {
  std::size_t tokens;
  std::size_t hidden;

  std::size_t elements() const { return tokens * hidden; }
  /// Multiples of 1/8 in [-1, 1]: sums of a few are exact in bf16.
  static std::vector<bf16> values(std::size_t count, std::size_t seed) {
    std::vector<bf16> result(count);
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = narrow<bf16>(static_cast<float>((i * 37 + seed * 11) % 17) / 8.0f - 1.0f);
    }
    return result;
  }
  std::vector<bf16> input(int rank) const { return values(elements(), 100 + static_cast<std::size_t>(rank)); }
  std::vector<bf16> residual() const { return values(elements(), 1); }
  std::vector<bf16> weight() const { return values(hidden, 2); }

  /// Throws unless the results of one call over so many ranks are right. quantised: of each element, times its row's
  /// scale, it is the element of `normalised` but for the rounding to fp8.
  void check(const std::vector<bf16>& newResidual, const std::vector<bf16>& normalised,
             const std::vector<f8e4m3>& quantised, const std::vector<float>& scales, int ranks) const {
    std::vector<double> sums(elements());
    const auto added = residual(), factors = weight();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<double>(widen<bf16>(added[i]));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto x = input(rank);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(widen<bf16>(x[i]));
    }
    for (std::size_t token = 0; token < tokens; ++token) {
      double squares = 0;
      for (std::size_t i = 0; i < hidden; ++i) squares += sums[token * hidden + i] * sums[token * hidden + i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(epsilon));
      for (std::size_t i = 0; i < hidden; ++i) {
        const std::size_t at = token * hidden + i;
        const std::string where = "token " + std::to_string(token) + ", element " + std::to_string(i);
        const double wanted = sums[at] * factor * static_cast<double>(widen<bf16>(factors[i]));
        const double got = static_cast<double>(widen<bf16>(normalised[at]));
        const double restored = static_cast<double>(widen<f8e4m3>(quantised[at])) * static_cast<double>(scales[token]);
        require(static_cast<double>(widen<bf16>(newResidual[at])) == sums[at], where + ": wrong residual");
        require(std::abs(got - wanted) <= std::abs(wanted) / 128, where + ": wrong normalised value");
        require(std::abs(restored - got) <= std::abs(got) / 15 + static_cast<double>(scales[token]) / 1024,
                where + ": wrong quantised value");
      }
    }
  }
};

}  // namespace example
