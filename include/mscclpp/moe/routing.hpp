// Routing of tokens to experts: which ranks and experts get a token, and the place of the token among those that they
// get.
#pragma once

#include "mscclpp/arch/warp.hpp"
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

/// Numbers the tokens in [begin, end) of which a choice is in [firstExpert, endExpert): calls number(token, choice,
/// index) once for every token, with the first such choice, or -1 if it has none. Returns how many have one. Called by
/// all lanes. Consecutive lanes read consecutive choices, so that a load of the warp touches few lines, and many loads
/// are in flight together.
template <WarpGroup Warp, class Index, class Number>
MSCCLPP_INLINE std::uint32_t numberTokens(const Warp& warp, const Routing<Index>& routing, int topk,
                                          std::uint32_t begin, std::uint32_t end, int firstExpert, int endExpert,
                                          const Number& number) {
  constexpr int width = Warp::width;
  constexpr int passes = (maxTopk + width - 1) / width;  // over the choices of a token: one on a GPU
  constexpr int chunks = passes > 1 ? 2 : 16;            // in flight together
  const int lanes = topk < width ? topk : width;         // of a token
  const int tokens = width / lanes;                      // of a chunk
  const int place = warp.rank() / lanes;                 // of the lane's token in the chunk
  const int first = place * lanes;                       // lane of that token
  const std::uint32_t before = (1u << warp.rank()) - 1;  // lanes
  const std::uint32_t sameToken = place < tokens ? ((1u << lanes) - 1) << first : 0;
  std::uint32_t count = 0;
  MSCCLPP_NO_UNROLL
  for (std::uint32_t chunk = begin; chunk < end; chunk += static_cast<std::uint32_t>(chunks * tokens)) {
    Index chosen[chunks][passes];
    MSCCLPP_UNROLL
    for (int c = 0; c < chunks; ++c) {
      const std::uint32_t token = chunk + static_cast<std::uint32_t>(c * tokens + place);
      MSCCLPP_UNROLL
      for (int p = 0; p < passes; ++p) {
        const int choice = p * lanes + warp.rank() - first;
        chosen[c][p] = -1;
        if (place < tokens && token < end && choice < topk) {
          chosen[c][p] =
              routing.experts[std::size_t{token} * static_cast<std::size_t>(topk) + static_cast<std::size_t>(choice)];
        }
      }
    }
    MSCCLPP_UNROLL
    for (int c = 0; c < chunks; ++c) {
      const std::uint32_t token = chunk + static_cast<std::uint32_t>(c * tokens + place);
      int choice = -1;  // that this lane numbers: the first match of its token
      bool hasMatch = false;
      MSCCLPP_UNROLL
      for (int p = 0; p < passes; ++p) {
        const Index expert = chosen[c][p];
        const bool matches = expert >= static_cast<Index>(firstExpert) && expert < static_cast<Index>(endExpert);
        const std::uint32_t matching = warp.ballot(matches) & sameToken;
        if (!hasMatch && matches && (matching & before) == 0) choice = p * lanes + warp.rank() - first;
        hasMatch = hasMatch || matching != 0;
      }
      const std::uint32_t numbered = warp.ballot(choice >= 0);
      if (choice >= 0) {
        number(token, choice, count + static_cast<std::uint32_t>(arch::countBits(numbered & before)));
      } else if (!hasMatch && warp.rank() == first && place < tokens && token < end) {
        number(token, -1, 0u);
      }
      count += static_cast<std::uint32_t>(arch::countBits(numbered));
    }
  }
  return count;
}

}  // namespace scan

/// Computes the layout of a routing. Called by all threads of the grid. sync() is a barrier of all of them, which is
/// called once or twice; after it all threads may read the layout. It returns false, the same in all threads of a
/// block, if it failed: then layOutRouting() returns false at once, and the layout is meaningless. Indices are in the
/// order of the tokens: the result is the same in every run. A warp scans a segment of the tokens for one expert or
/// rank at a time; about experts + ranks warps for each segmentTokens tokens keep it short.
template <Grid GridType, class Index, class Sync>
MSCCLPP_INLINE bool layOutRouting(const GridType& grid, const Routing<Index>& routing, const Dimensions& dimensions,
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

  // The choices that do not count, each by one thread. No early exit: the loads are in flight together.
  const auto blockThreads = grid.block();
  const auto thread =
      block * static_cast<std::uint32_t>(blockThreads.size()) + static_cast<std::uint32_t>(blockThreads.rank());
  const auto threads = blocks * static_cast<std::uint32_t>(blockThreads.size());
  for (std::size_t i = thread; i < routing.tokens * choices; i += threads) {
    const auto choice = static_cast<int>(i % choices);
    const Index expert = routing.experts[i];
    bool counts = expert >= 0 && expert < static_cast<Index>(dimensions.experts);
    MSCCLPP_UNROLL
    for (int before = 1; before < maxTopk; ++before) {
      const Index other = before <= choice ? routing.experts[i - static_cast<std::size_t>(before)] : Index{-1};
      counts &= other != expert;
    }
    if (!counts) layout.expertIndex[i] = -1;
  }

  // The warps of a block scan the same segment, so that it stays in the multiprocessor's cache. Experts, then ranks.
  const std::uint32_t segment = block % segments;
  const std::uint32_t begin = segment * length < routing.tokens ? segment * length : routing.tokens;
  const std::uint32_t end = begin + length < routing.tokens ? begin + length : routing.tokens;
  const auto blocksOfSegment = static_cast<int>((blocks - segment + segments - 1) / segments);
  const int first = grid.warpIndex() * blocksOfSegment + static_cast<int>(block / segments);
  for (int bin = first; bin < counted; bin += grid.warpCount() * blocksOfSegment) {
    std::uint32_t count = 0;
    if (bin < dimensions.experts) {
      count = scan::numberTokens(
          warp, routing, topk, begin, end, bin, bin + 1, [&](std::uint32_t token, int choice, std::uint32_t index) {
            if (choice < 0) return;
            layout.expertIndex[token * choices + static_cast<std::size_t>(choice)] = static_cast<std::int32_t>(index);
          });
    } else {
      const int rank = bin - dimensions.experts;
      const int firstExpert = rank * dimensions.expertsPerRank();
      count =
          scan::numberTokens(warp, routing, topk, begin, end, firstExpert, firstExpert + dimensions.expertsPerRank(),
                             [&](std::uint32_t token, int choice, std::uint32_t index) {
                               layout.rankIndex[token * ranks + static_cast<std::size_t>(rank)] =
                                   choice >= 0 ? static_cast<std::int32_t>(index) : -1;
                             });
    }
    if (warp.rank() != 0) continue;
    std::uint32_t* const totals =
        bin < dimensions.experts ? layout.tokensPerExpert + bin : layout.tokensPerRank + (bin - dimensions.experts);
    *(segments == 1 ? totals : layout.segmentCounts + segment * static_cast<std::uint32_t>(counted) + bin) = count;
  }
  if (!sync()) return false;
  if (segments == 1) return true;

  // What the segments before have is added, and the totals are computed.
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
  return sync();
}

}  // namespace mscclpp::moe
