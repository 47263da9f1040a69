// The layout of a routing of many tokens, computed by all blocks together: each counts bits in segments of the tokens.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/block_routing.hpp"
#include "mscclpp/moe/routing.hpp"

namespace mscclpp::moe {

/// The tokens are in up to so many segments, one for a block, of a multiple of so many tokens, whose bits a block has
/// at once.
inline constexpr std::uint32_t maxSegments = 128;
inline constexpr std::uint32_t chunkTokens = 128;

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

/// The words of a block with which layOutRouting() computes.
MSCCLPP_HOST_DEVICE inline std::size_t routingLayoutWords(const Dimensions& dimensions) {
  return blockRoutingWords({chunkTokens, dimensions.topk, dimensions.experts, dimensions.ranks}) +
         static_cast<std::size_t>(dimensions.experts + dimensions.ranks);
}

/// Segments of so many tokens each, the last one maybe of fewer: one for each of the first `count` blocks, 1 or more.
struct RoutingSegments {
  std::uint32_t length, count;

  MSCCLPP_HOST_DEVICE RoutingSegments(std::uint32_t tokens, std::uint32_t blocks) {
    const std::uint32_t most = blocks < maxSegments ? blocks : maxSegments;
    const std::uint32_t chunks = (tokens + chunkTokens - 1) / chunkTokens;
    length = (chunks + most - 1) / most * chunkTokens;
    count = chunks > 0 ? (tokens + length - 1) / length : 1;
  }
};

/// The segment of the calling block, as seen by one of its threads.
template <class GridType, class Index>
class RoutingSegment {
 public:
  /// words: [routingLayoutWords(dimensions)], of this block.
  MSCCLPP_INLINE RoutingSegment(const GridType& grid, const Routing<Index>& routing, const Dimensions& dimensions,
                                const RoutingLayout& layout, std::uint32_t* words)
      : grid_(grid),
        routing_(routing),
        dimensions_(dimensions),
        layout_(layout),
        bits_(grid, dimensions, words + bins()),
        sums_(words),
        segments_(routing.tokens, static_cast<std::uint32_t>(grid.blockCount())) {}

  /// The number of segments. Block b has segment b, if there is one.
  MSCCLPP_INLINE std::uint32_t count() const { return segments_.count; }
  MSCCLPP_INLINE bool exists() const { return index() < segments_.count; }

  /// Writes the counts of the segment, or, once all blocks have done so, numbers its tokens; then the last segment
  /// writes the totals. One function for both: a short kernel spends its time on fetching instructions. Called by all
  /// threads of the block.
  MSCCLPP_INLINE void run(bool numbers) const {
    const bool isLast = index() + 1 == segments_.count;
    if (!exists() || (isLast && !numbers)) return;
    const std::uint32_t before = numbers ? index() : 0;
    forEachBin([&](std::uint32_t bin) { sums_[bin] = countIn(before, bin); });
    const std::uint32_t length = segments_.length;
    const std::uint32_t first = index() * length;
    const std::uint32_t end = first + length < routing_.tokens ? first + length : routing_.tokens;
    const bool hasBits = numbers && !isLast && length == chunkTokens;  // of the first run
    MSCCLPP_NO_UNROLL
    for (std::uint32_t begin = first; begin < end; begin += chunkTokens) {
      const std::uint32_t tokens = end - begin < chunkTokens ? end - begin : chunkTokens;
      const Routing<Index> chunk{routing_.experts + std::size_t{begin} * static_cast<std::size_t>(dimensions_.topk),
                                 nullptr, tokens};
      if (begin > first || hasBits) grid_.block().sync();  // the bits before have been counted, or the sums are there
      if (!hasBits) bits_.make(chunk);
      if (numbers) {
        numberChoices(begin, chunk);
        numberRanks(begin, chunk);
        if (!isLast && begin + chunkTokens >= end) return;  // nobody needs the sums
        grid_.block().sync();
      }
      forEachBin([&](std::uint32_t bin) { sums_[bin] += bits_.countOfBin(bin, tokens); });
    }
    const auto experts = static_cast<std::uint32_t>(dimensions_.experts);
    forEachBin([&](std::uint32_t bin) {
      std::uint32_t* to = layout_.segmentCounts + index() * bins() + bin;
      if (numbers) to = bin < experts ? layout_.tokensPerExpert + bin : layout_.tokensPerRank + (bin - experts);
      *to = sums_[bin];
    });
  }

 private:
  MSCCLPP_INLINE std::uint32_t index() const { return static_cast<std::uint32_t>(grid_.blockIndex()); }
  /// Experts, then ranks.
  MSCCLPP_INLINE std::uint32_t bins() const {
    return static_cast<std::uint32_t>(dimensions_.experts + dimensions_.ranks);
  }
  /// Calls f(i) for the calling thread's share of `count` items, the same ones every time.
  template <class F>
  MSCCLPP_INLINE void share(std::uint32_t count, const F& f) const {
    const auto block = grid_.block();
    MSCCLPP_NO_UNROLL
    for (auto i = static_cast<std::uint32_t>(block.rank()); i < count; i += static_cast<std::uint32_t>(block.size())) {
      f(i);
    }
  }
  template <class F>
  MSCCLPP_INLINE void forEachBin(const F& f) const {
    share(bins(), f);
  }

  /// The tokens of a bin in the first `segments` segments. One thread.
  MSCCLPP_INLINE std::uint32_t countIn(std::uint32_t segments, std::uint32_t bin) const {
    constexpr std::uint32_t batch = 16;  // loads in flight together
    std::uint32_t sum = 0;
    MSCCLPP_NO_UNROLL
    for (std::uint32_t first = 0; first < segments; first += batch) {
      std::uint32_t counts[batch];
      MSCCLPP_UNROLL
      for (std::uint32_t i = 0; i < batch; ++i) {
        const std::uint32_t segment = first + i;
        counts[i] = segment < segments ? layout_.segmentCounts[segment * bins() + bin] : 0;
      }
      MSCCLPP_UNROLL
      for (std::uint32_t i = 0; i < batch; ++i) sum += counts[i];
    }
    return sum;
  }

  MSCCLPP_INLINE void numberChoices(std::uint32_t begin, const Routing<Index>& chunk) const {
    const auto choices = static_cast<std::uint32_t>(dimensions_.topk);
    std::int32_t* const indices = layout_.expertIndex + std::size_t{begin} * choices;
    share(chunk.tokens * choices, [&](std::uint32_t i) {
      const std::uint32_t token = i / choices;
      const std::uint32_t choice = i - token * choices;
      const Index expert = chunk.experts[i];
      bool counts = expert >= 0 && expert < static_cast<Index>(dimensions_.experts);
      MSCCLPP_UNROLL
      for (std::uint32_t before = 1; before < maxTopk; ++before) {  // no early exit: the loads are in flight together
        const Index other = before <= choice ? chunk.experts[i - before] : Index{-1};
        counts &= other != expert;
      }
      const auto bin = static_cast<std::uint32_t>(expert);
      indices[i] = counts ? static_cast<std::int32_t>(sums_[bin] + bits_.indexAtExpert(token, bin)) : -1;
    });
  }

  MSCCLPP_INLINE void numberRanks(std::uint32_t begin, const Routing<Index>& chunk) const {
    const auto ranks = static_cast<std::uint32_t>(dimensions_.ranks);
    std::int32_t* const indices = layout_.rankIndex + std::size_t{begin} * ranks;
    share(chunk.tokens * ranks, [&](std::uint32_t i) {
      const std::uint32_t token = i / ranks;
      const std::uint32_t rank = i - token * ranks;
      const std::int32_t inChunk = bits_.indexAtRank(token, static_cast<int>(rank));
      const std::uint32_t before = sums_[static_cast<std::uint32_t>(dimensions_.experts) + rank];
      indices[i] = inChunk < 0 ? -1 : inChunk + static_cast<std::int32_t>(before);
    });
  }

  const GridType& grid_;
  const Routing<Index>& routing_;
  const Dimensions& dimensions_;
  const RoutingLayout& layout_;
  const BlockRouting<GridType> bits_;
  std::uint32_t* const sums_;  ///< [bins()]: the tokens before the current chunk
  const RoutingSegments segments_;
};

/// Computes the layout of a routing. Called by all threads of the grid; the first blocks, one for each segment, do it.
/// words: [routingLayoutWords(dimensions)] of the calling block. sync(blocks) is a barrier of the first so many blocks,
/// which only they call, once or, with one segment, not at all. finish(blocks), which every block calls at last, waits
/// until the first so many blocks have called it; after it all threads may read the layout, and the words are free.
/// They return false, the same in all threads of a block, if they failed: then layOutRouting() returns false at once,
/// and the layout is meaningless. Indices are in the order of the tokens: the result is the same in every run.
template <Grid GridType, class Index, class Sync, class Finish>
MSCCLPP_INLINE bool layOutRouting(const GridType& grid, const Routing<Index>& routing, const Dimensions& dimensions,
                                  const RoutingLayout& layout, std::uint32_t* words, const Sync& sync,
                                  const Finish& finish) {
  const RoutingSegment<GridType, Index> segment(grid, routing, dimensions, layout, words);
  MSCCLPP_NO_UNROLL
  for (bool numbers = segment.count() == 1;; numbers = true) {
    segment.run(numbers);
    if (numbers) return finish(segment.count());
    if (segment.exists() && !sync(segment.count())) return false;
  }
}

}  // namespace mscclpp::moe
