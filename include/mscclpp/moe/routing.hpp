// Routing of tokens to experts: the sizes of a mixture of experts, and which experts get a token.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::moe {

/// The largest number of experts of a token.
inline constexpr int maxTopk = 8;

/// The sizes of a mixture of experts; the same on all ranks. Rank r has experts [r * expertsPerRank(), (r + 1) *
/// expertsPerRank()).
struct Dimensions {
  std::uint32_t maxTokens;  ///< the most tokens of a rank in a call; at most 65535
  int topk;                 ///< experts of a token; at most maxTopk
  int experts;              ///< of all ranks, a multiple of their number; at most 65535 of a rank
  int ranks;

  MSCCLPP_HOST_DEVICE int expertsPerRank() const { return experts / ranks; }
  MSCCLPP_HOST_DEVICE bool isValid() const {
    return maxTokens > 0 && maxTokens <= 65535 && topk > 0 && topk <= maxTopk && ranks > 0 && experts > 0 &&
           experts % ranks == 0 && expertsPerRank() <= 65535;
  }
};

/// The experts of this rank's tokens. Index: std::int32_t or std::int64_t.
template <class Index>
struct Routing {
  const Index* experts;  ///< [tokens][topk]; what is not in [0, experts), such as -1, is no expert: a dropped choice
  const float* weights;  ///< [tokens][topk]; null: all 1
  std::uint32_t tokens;  ///< may be 0
};

}  // namespace mscclpp::moe
