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

/// Many tokens are scanned in up to so many segments, of at least so many tokens each.
inline constexpr std::uint32_t maxSegments = 8;
inline constexpr std::uint32_t segmentTokens = 512;

/// What layOutRouting() finds out, in memory of this rank.
struct RoutingLayout {
  std::uint32_t* tokensPerExpert;  ///< [experts]
  std::uint32_t* tokensPerRank;    ///< [ranks]; a token counts once for a rank, however many experts it has there
  /// [tokens][ranks]: the index of the token among those for the rank, -1 if the rank does not get it.
  std::int32_t* rankIndex;
  /// [tokens][topk]: the index of the token among this rank's tokens for that expert, -1 if there is no such choice. If
  /// a token chooses an expert twice, only the first choice counts.
  std::int32_t* expertIndex;
  std::uint32_t* segmentCounts;  ///< [maxSegments][experts + ranks]: for the computation
};

namespace scan {

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

/// The choice of a token that is in [first, end), -1 if none is: the first.
template <class Index>
MSCCLPP_INLINE int choiceWithin(const Index* choices, int topk, int first, int end) {
  int match = -1;
  MSCCLPP_UNROLL
  for (int j = maxTopk - 1; j >= 0; --j) {
    if (j < topk && choices[j] >= static_cast<Index>(first) && choices[j] < static_cast<Index>(end)) match = j;
  }
  return match;
}

/// Numbers the tokens in [begin, end) of which a choice is in [firstExpert, endExpert): calls number(token, choice,
/// index) for every token, with choice -1 for those that have none. Returns how many have one. Called by all lanes.
template <WarpGroup Warp, class Index, class Number>
MSCCLPP_INLINE std::uint32_t numberTokens(const Warp& warp, const Routing<Index>& routing, int topk,
                                          std::uint32_t begin, std::uint32_t end, int firstExpert, int endExpert,
                                          const Number& number) {
  // Several tokens of a lane at once, with their loads in flight together; their sums over the lanes share a word.
  constexpr int batch = 4;
  constexpr auto width = static_cast<std::uint32_t>(Warp::width);
  std::uint32_t count = 0;
  for (std::uint32_t first = begin; first < end; first += batch * width) {
    int matches[batch];
    std::uint32_t found = 0;
    MSCCLPP_UNROLL
    for (int b = 0; b < batch; ++b) {
      const std::uint32_t token =
          first + static_cast<std::uint32_t>(b) * width + static_cast<std::uint32_t>(warp.rank());
      matches[b] = -1;
      if (token < end) {
        matches[b] = choiceWithin(routing.experts + std::size_t{token} * static_cast<std::size_t>(topk), topk,
                                  firstExpert, endExpert);
      }
      found |= (matches[b] >= 0 ? 1u : 0u) << (8 * b);
    }
    std::uint32_t totals = 0;
    const std::uint32_t before = sumOfLanesBefore(warp, found, totals);
    MSCCLPP_UNROLL
    for (int b = 0; b < batch; ++b) {
      const std::uint32_t token =
          first + static_cast<std::uint32_t>(b) * width + static_cast<std::uint32_t>(warp.rank());
      if (token < end) number(token, matches[b], count + (before >> (8 * b) & 0xffu));
      count += totals >> (8 * b) & 0xffu;
    }
  }
  return count;
}

}  // namespace scan

/// Computes the layout of a routing. Called by all threads of the grid. sync() is a barrier of all of them, which is
/// called once or twice; after it all threads may read the layout. Indices are in the order of the tokens: the result
/// is the same in every run. A warp scans a segment of the tokens for one expert or rank at a time; about experts +
/// ranks warps for each segmentTokens tokens keep it short.
template <Grid GridType, class Index, class Sync>
MSCCLPP_INLINE void layOutRouting(const GridType& grid, const Routing<Index>& routing, const Dimensions& dimensions,
                                  const RoutingLayout& layout, const Sync& sync) {
  const auto warp = grid.warp();
  const int topk = dimensions.topk;
  const auto ranks = static_cast<std::size_t>(dimensions.ranks);
  const auto choices = static_cast<std::size_t>(topk);
  const int counted = dimensions.experts + dimensions.ranks;
  const auto blocks = static_cast<std::uint32_t>(grid.blockCount());
  const auto block = static_cast<std::uint32_t>(grid.blockIndex());
  std::uint32_t segments = (routing.tokens + segmentTokens - 1) / segmentTokens;
  segments = segments < 1 ? 1 : segments > maxSegments ? maxSegments : segments;
  segments = segments > blocks ? blocks : segments;
  const std::uint32_t length = (routing.tokens + segments - 1) / segments;

  // The warps of a block scan the same segment, so that it stays in the multiprocessor's cache. Experts, then ranks,
  // then one more for the choices that do not count.
  const std::uint32_t segment = block % segments;
  const std::uint32_t begin = segment * length < routing.tokens ? segment * length : routing.tokens;
  const std::uint32_t end = begin + length < routing.tokens ? begin + length : routing.tokens;
  const auto blocksOfSegment = static_cast<int>((blocks - segment + segments - 1) / segments);
  const int first = grid.warpIndex() * blocksOfSegment + static_cast<int>(block / segments);
  for (int bin = first; bin <= counted; bin += grid.warpCount() * blocksOfSegment) {
    std::uint32_t count = 0;
    if (bin < dimensions.experts) {
      count = scan::numberTokens(
          warp, routing, topk, begin, end, bin, bin + 1, [&](std::uint32_t token, int choice, std::uint32_t index) {
            if (choice < 0) return;
            layout.expertIndex[token * choices + static_cast<std::size_t>(choice)] = static_cast<std::int32_t>(index);
          });
    } else if (bin < counted) {
      const int rank = bin - dimensions.experts;
      const int firstExpert = rank * dimensions.expertsPerRank();
      count =
          scan::numberTokens(warp, routing, topk, begin, end, firstExpert, firstExpert + dimensions.expertsPerRank(),
                             [&](std::uint32_t token, int choice, std::uint32_t index) {
                               layout.rankIndex[token * ranks + static_cast<std::size_t>(rank)] =
                                   choice >= 0 ? static_cast<std::int32_t>(index) : -1;
                             });
    } else {
      for (std::uint32_t token = begin + static_cast<std::uint32_t>(warp.rank()); token < end;
           token += static_cast<std::uint32_t>(warp.size())) {
        const Index* const chosen = routing.experts + token * choices;
        for (int j = 0; j < topk; ++j) {
          bool counts = chosen[j] >= 0 && chosen[j] < static_cast<Index>(dimensions.experts);
          for (int before = 0; before < j; ++before) counts = counts && chosen[before] != chosen[j];
          if (!counts) layout.expertIndex[token * choices + static_cast<std::size_t>(j)] = -1;
        }
      }
      continue;
    }
    if (warp.rank() != 0) continue;
    std::uint32_t* const totals =
        bin < dimensions.experts ? layout.tokensPerExpert + bin : layout.tokensPerRank + (bin - dimensions.experts);
    *(segments == 1 ? totals : layout.segmentCounts + segment * static_cast<std::uint32_t>(counted) + bin) = count;
  }
  sync();
  if (segments == 1) return;

  // What the segments before have is added, and the totals are computed.
  const auto blockThreads = grid.block();
  const auto thread =
      block * static_cast<std::uint32_t>(blockThreads.size()) + static_cast<std::uint32_t>(blockThreads.rank());
  const auto threads = blocks * static_cast<std::uint32_t>(blockThreads.size());
  const auto before = [&](std::uint32_t segmentsBefore, int bin) {
    std::uint32_t sum = 0;
    for (std::uint32_t s = 0; s < segmentsBefore; ++s) {
      sum += layout.segmentCounts[s * static_cast<std::uint32_t>(counted) + static_cast<std::uint32_t>(bin)];
    }
    return sum;
  };
  for (auto bin = static_cast<int>(thread); bin < counted; bin += static_cast<int>(threads)) {
    const std::uint32_t total = before(segments, bin);
    if (bin < dimensions.experts) {
      layout.tokensPerExpert[bin] = total;
    } else {
      layout.tokensPerRank[bin - dimensions.experts] = total;
    }
  }
  for (std::size_t i = length * choices + thread; i < routing.tokens * choices; i += threads) {
    if (layout.expertIndex[i] < 0) continue;
    layout.expertIndex[i] += static_cast<std::int32_t>(
        before(static_cast<std::uint32_t>(i / choices) / length, static_cast<int>(routing.experts[i])));
  }
  for (std::size_t i = length * ranks + thread; i < routing.tokens * ranks; i += threads) {
    if (layout.rankIndex[i] < 0) continue;
    layout.rankIndex[i] += static_cast<std::int32_t>(
        before(static_cast<std::uint32_t>(i / ranks) / length, dimensions.experts + static_cast<int>(i % ranks)));
  }
  sync();
}

}  // namespace mscclpp::moe
