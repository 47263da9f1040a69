// 15: a layer of a mixture of experts: tokens travel to their experts' ranks and the results back; inputs and the
// expected result.
#pragma once

#include <cstdint>
#include <vector>

#include "example.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"

namespace example {

using namespace mscclpp;

/// The expert: a factor in place of two matrices. A GPU calls it too.
MSCCLPP_INLINE float factorOf(int expert) {
  return static_cast<float>(1 + expert % 4);
}

struct Problem {
  int ranks;
  int experts;
  std::uint32_t tokens;  ///< of a rank, the most
  std::uint32_t hidden;
  static constexpr int topk = 2;

  /// Ranks have different numbers of tokens; the last of several has none.
  std::uint32_t tokensOf(int rank) const {
    if (ranks == 1) return tokens;
    return tokens * static_cast<std::uint32_t>(ranks - 1 - rank) / static_cast<std::uint32_t>(ranks - 1);
  }
  std::vector<std::int64_t> chosen(int rank) const {
    std::vector<std::int64_t> result;
    for (std::uint32_t token = 0; token < tokensOf(rank); ++token) {
      const int first = static_cast<int>(token * 7 + static_cast<std::uint32_t>(rank) * 3) % experts;
      result.push_back(first);
      result.push_back(token % 5 == 4 ? -1 : (first + 1 + static_cast<int>(token % 2)) % experts);  // -1: one choice
    }
    return result;
  }
  std::vector<float> weights(int rank) const {
    std::vector<float> result;
    for (std::uint32_t token = 0; token < tokensOf(rank); ++token) {
      result.push_back(0.5f);
      result.push_back(token % 2 == 0 ? 0.25f : 0.5f);
    }
    return result;
  }
  /// Multiples of 1/8 in [-1, 1]: the results are exact in bf16.
  std::vector<bf16> rows(int rank) const {
    std::vector<bf16> result(std::size_t{tokensOf(rank)} * hidden);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = narrow<bf16>(static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 11) % 17) / 8.0f - 1.0f);
    }
    return result;
  }
  /// Throws unless the tokens' results are right.
  void check(int rank, const std::vector<bf16>& output) const {
    const auto input = rows(rank);
    const auto experts_ = chosen(rank);
    const auto factors = weights(rank);
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t token = i / hidden;
      float wanted = 0;
      for (std::size_t j = token * topk; j < (token + 1) * topk; ++j) {
        if (experts_[j] >= 0) wanted += factors[j] * factorOf(static_cast<int>(experts_[j])) * widen<bf16>(input[i]);
      }
      require(widen<bf16>(output[i]) == wanted, "token " + std::to_string(token) + " has a wrong result");
    }
  }
};

}  // namespace example
