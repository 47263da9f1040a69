// Routing of tokens to experts: which ranks and experts get a token, and the place of the token among those that they
// get.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
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

/// What layOutRouting() finds out, in memory of this rank.
struct RoutingLayout {
  std::uint32_t* tokensPerExpert;  ///< [experts]
  std::uint32_t* tokensPerRank;    ///< [ranks]; a token counts once for a rank, however many experts it has there
  /// [tokens][ranks]: the index of the token among those for the rank, -1 if the rank does not get it.
  std::int32_t* rankIndex;
  /// [tokens][topk]: the index of the token among this rank's tokens for that expert, -1 if there is no such choice. If
  /// a token chooses an expert twice, only the first choice counts.
  std::int32_t* expertIndex;
};

/// The sum of the values of the lanes before the caller's, and in `total` of all lanes. Called by all lanes.
template <WarpGroup Warp>
MSCCLPP_INLINE std::uint32_t sumOfLanesBefore(const Warp& warp, std::uint32_t value, std::uint32_t& total) {
  std::uint32_t sum = value;
  MSCCLPP_UNROLL
  for (int distance = 1; distance < Warp::width; distance *= 2) {
    const int source = warp.rank() - distance;
    const std::uint32_t other = warp.shuffle(sum, source < 0 ? 0 : source);
    sum += source < 0 ? 0 : other;
  }
  total = warp.shuffle(sum, Warp::width - 1);
  return sum - value;
}

/// Computes the layout of a routing. Called by all threads of the grid; other threads than the writer may read the
/// layout after a barrier of the grid. Indices are in the order of the tokens: the result is the same in every run.
/// Each warp scans all tokens for one expert or rank at a time: about experts + ranks warps keep it short.
template <Grid GridType, class Index>
MSCCLPP_INLINE void layOutRouting(const GridType& grid, const Routing<Index>& routing, const Dimensions& dimensions,
                                  const RoutingLayout& layout) {
  const auto warp = grid.warp();
  const int perRank = dimensions.expertsPerRank();
  const int topk = dimensions.topk;
  // Experts, then ranks, then one more for the choices that do not count.
  const int bins = dimensions.experts + dimensions.ranks + 1;
  for (int bin = grid.warpIndex() * grid.blockCount() + grid.blockIndex(); bin < bins;
       bin += grid.warpCount() * grid.blockCount()) {
    const bool isExpert = bin < dimensions.experts;
    const bool isRank = !isExpert && bin < bins - 1;
    const int rank = bin - dimensions.experts;
    const int first = isExpert ? bin : isRank ? rank * perRank : 0;
    const int end = isExpert ? bin + 1 : isRank ? first + perRank : dimensions.experts;
    std::uint32_t count = 0;
    for (std::uint32_t begin = 0; begin < routing.tokens; begin += static_cast<std::uint32_t>(warp.size())) {
      const std::uint32_t token = begin + static_cast<std::uint32_t>(warp.rank());
      const bool isPresent = token < routing.tokens;
      const Index* const chosen = routing.experts + std::size_t{token} * static_cast<std::size_t>(topk);
      std::int32_t* const indices = layout.expertIndex + std::size_t{token} * static_cast<std::size_t>(topk);
      int match = -1;
      if (isPresent) {
        for (int j = 0; j < topk; ++j) {
          const bool isWithin = chosen[j] >= static_cast<Index>(first) && chosen[j] < static_cast<Index>(end);
          if (isExpert || isRank) {
            if (isWithin && match < 0) match = j;
          } else {
            bool counts = isWithin;
            for (int before = 0; before < j; ++before) counts = counts && chosen[before] != chosen[j];
            if (!counts) indices[j] = -1;
          }
        }
      }
      if (!isExpert && !isRank) continue;
      std::uint32_t found = 0;
      const std::uint32_t index = count + sumOfLanesBefore(warp, match >= 0 ? 1 : 0, found);
      count += found;
      if (isExpert) {
        if (match >= 0) indices[match] = static_cast<std::int32_t>(index);
      } else if (isPresent) {
        layout.rankIndex[std::size_t{token} * static_cast<std::size_t>(dimensions.ranks) +
                         static_cast<std::size_t>(rank)] = match >= 0 ? static_cast<std::int32_t>(index) : -1;
      }
    }
    if (warp.rank() == 0 && isExpert) layout.tokensPerExpert[bin] = count;
    if (warp.rank() == 0 && isRank) layout.tokensPerRank[rank] = count;
  }
}

}  // namespace mscclpp::moe
