// Inputs of an all-reduce with residual and RMSNorm whose sums are exact in every type, and a check of the results.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::test {

template <class T>
struct RmsNormProblem {
  std::size_t rows;
  std::size_t hidden;

  static constexpr float epsilon = 1e-5f;
  /// Of a normalised value: three roundings to T (of the weight's product, and of fp32 factors), and fp32 sums.
  static constexpr double tolerance = sizeof(T) == 4 ? 1e-5 : std::is_same_v<T, f16> ? 1.0 / 1000 : 1.0 / 128;

  std::size_t elements() const { return rows * hidden; }
  /// Multiples of 1/8 in [-1, 1].
  static std::vector<T> values(std::size_t count, std::size_t seed) {
    std::vector<T> result(count);
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = narrow<T>(static_cast<float>((i * 37 + seed * 11) % 17) / 8.0f - 1.0f);
    }
    return result;
  }
  std::vector<T> input(int rank) const { return values(elements(), 100 + static_cast<std::size_t>(rank)); }
  std::vector<T> residual() const { return values(elements(), 1); }
  std::vector<T> weight() const { return values(hidden, 2); }

  /// The new residual after a call over so many ranks.
  std::vector<double> sums(int ranks) const {
    std::vector<double> result(elements());
    const auto added = residual();
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<double>(widen<T>(added[i]));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto x = input(rank);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] += static_cast<double>(widen<T>(x[i]));
    }
    return result;
  }

  /// What is wrong with the results of a call whose new residual is to be `sums`; empty if nothing is.
  std::string differenceOf(const std::vector<T>& newResidual, const std::vector<T>& normalised,
                           const std::vector<double>& sums) const {
    const auto at = [](const std::vector<T>& array, std::size_t i) { return static_cast<double>(widen<T>(array[i])); };
    const auto factors = weight();
    for (std::size_t row = 0; row < rows; ++row) {
      double squares = 0;
      for (std::size_t i = 0; i < hidden; ++i) squares += sums[row * hidden + i] * sums[row * hidden + i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(epsilon));
      for (std::size_t i = 0; i < hidden; ++i) {
        const std::size_t place = row * hidden + i;
        const double wanted = sums[place] * factor * at(factors, i);
        const bool isSum = at(newResidual, place) == sums[place];
        if (isSum && std::abs(at(normalised, place) - wanted) <= tolerance * std::abs(wanted)) continue;
        return (isSum ? "the norm of row " : "the new residual of row ") + std::to_string(row) + ", element " +
               std::to_string(i);
      }
    }
    return "";
  }
};

/// Short rows, one shot; two shots with more than two ranks; the longest rows; more than one kernel, with one row in
/// the last (bytes: what a kernel takes).
template <class T>
std::vector<RmsNormProblem<T>> rmsNormProblems(std::size_t bytes) {
  constexpr std::size_t longest = 16384;
  return {{1, 8},
          {9, 256},
          {300 * 1024 / sizeof(T) / 4096, 4096},
          {3, longest},
          {bytes / sizeof(T) / longest + 1, longest}};
}

}  // namespace mscclpp::test
