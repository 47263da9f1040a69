// What is done with the news of a lost rank wherever it arrives.
#pragma once

#include <optional>
#include <string>

#include "mscclpp/host/liveness.hpp"

namespace mscclpp::detail {

inline void keepFirst(std::optional<RankFailure>& first, const RankFailure& news) noexcept {
  if (first) return;
  try {
    first = news;
  } catch (...) {  // no memory for the reason: the rank will do
    first = RankFailure{news.rank, {}};
  }
}

inline std::string describe(const RankFailure& failure) {
  const std::string reason = failure.reason.empty() ? "" : ": " + failure.reason;
  return "rank " + std::to_string(failure.rank) + " was lost" + reason;
}

}  // namespace mscclpp::detail
