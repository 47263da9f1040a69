// Ranks in messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mscclpp::detail {

/// "1, 4", and only the first ones of many.
inline std::string rankList(const std::vector<int>& ranks) {
  constexpr std::size_t maxListed = 16;
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < maxListed; ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return ranks.size() > maxListed ? text + " and " + std::to_string(ranks.size() - maxListed) + " more" : text;
}

/// "rank 1 of 4 is missing" or "ranks 1, 2 of 4 are missing".
inline std::string missingRanksText(const std::vector<int>& ranks, std::size_t total) {
  const bool isOne = ranks.size() == 1;
  return (isOne ? "rank " : "ranks ") + rankList(ranks) + " of " + std::to_string(total) +
         (isOne ? " is missing" : " are missing");
}

}  // namespace mscclpp::detail
