// What the ranks tell each other as they enter a dispatch, and where its rows begin in the output: a table by rank and
// expert that each block computes for itself.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/routing.hpp"

namespace mscclpp::moe {

/// The count words that a rank sends to another: the tokens that it sends there, the rows that its own output holds or
/// noLimit, and the rows for each of the other's experts.
struct DispatchCounts {
  static constexpr std::uint32_t tokens = 0;
  static constexpr std::uint32_t rowLimit = 1;
  static constexpr std::uint32_t firstExpert = 2;
  static constexpr std::uint32_t noLimit = 0xffffffffu;

  static MSCCLPP_HOST_DEVICE std::uint32_t words(const Dimensions& dimensions) {
    return firstExpert + static_cast<std::uint32_t>(dimensions.expertsPerRank());
  }
};

/// The memory of a block's table, in words of 32 bits.
MSCCLPP_HOST_DEVICE inline std::size_t rowTableWords(const Dimensions& dimensions) {
  return static_cast<std::size_t>(dimensions.ranks) * DispatchCounts::words(dimensions) +
         static_cast<std::size_t>(dimensions.expertsPerRank()) * 2 + 1;
}

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

}  // namespace scan

template <class GridType, class Warp>
class RowTable {
 public:
  /// words: [rowTableWords(dimensions)], of this block.
  MSCCLPP_INLINE RowTable(const GridType& grid, const Warp& warp, const Dimensions& dimensions, std::uint32_t* words)
      : grid_(grid), warp_(warp), dimensions_(dimensions), words_(words) {}

  /// Gets the count words: awaitCount(rank, word) waits for one. Called by all threads of the block; count() and
  /// make() may follow after a barrier of the block.
  template <class AwaitCount>
  MSCCLPP_INLINE void receive(const AwaitCount& awaitCount) const {
    const auto block = grid_.block();
    const std::uint32_t ofRank = DispatchCounts::words(dimensions_);
    const std::uint32_t all = ofRank * static_cast<std::uint32_t>(dimensions_.ranks);
    MSCCLPP_NO_UNROLL
    for (auto i = static_cast<std::uint32_t>(block.rank()); i < all; i += static_cast<std::uint32_t>(block.size())) {
      words_[i] = awaitCount(static_cast<int>(i / ofRank), i % ofRank);
    }
  }
  /// DispatchCounts::tokens or rowLimit of a rank.
  MSCCLPP_INLINE std::uint32_t count(int from, std::uint32_t word) const {
    return words_[static_cast<std::size_t>(from) * DispatchCounts::words(dimensions_) + word];
  }

  /// Computes the table; block 0 also writes the counts and offsets of `placement`. Called once by all threads of the
  /// block. Returns the end of the rows, padding included, the same in all threads.
  MSCCLPP_INLINE std::uint32_t make(const ExpertPlacement& placement) const {
    const auto block = grid_.block();
    const int experts = dimensions_.expertsPerRank();
    if (placement.stride > 0) {
      MSCCLPP_NO_UNROLL
      for (int expert = block.rank(); expert < experts; expert += block.size()) {
        placeExpert(placement, expert, static_cast<std::uint32_t>(expert) * placement.stride);
      }
      const std::uint32_t end = static_cast<std::uint32_t>(experts) * placement.stride;
      if (grid_.blockIndex() == 0 && block.rank() == 0) placement.offsets[experts] = end;
      block.sync();
      return end;
    }
    std::uint32_t* const starts =
        words_ + static_cast<std::size_t>(dimensions_.ranks) * DispatchCounts::words(dimensions_);
    std::uint32_t* const sums = starts + experts;  // of the experts of a warp
    std::uint32_t* const end = sums + experts;
    const auto forEachChunk = [&](const auto& f) {
      MSCCLPP_NO_UNROLL
      for (int chunk = grid_.warpIndex(); chunk * width < experts; chunk += grid_.warpCount()) {
        const int expert = chunk * width + warp_.rank();
        f(chunk, expert, expert < experts);
      }
    };
    forEachChunk([&](int chunk, int expert, bool isExpert) {
      std::uint32_t total = 0;
      MSCCLPP_NO_UNROLL
      for (int from = 0; isExpert && from < dimensions_.ranks; ++from) total += begins(from)[expert];
      std::uint32_t sum = 0;
      const std::uint32_t before = scan::sumOfLanesBefore(warp_, isExpert ? placement.aligned(total) : 0u, sum);
      if (isExpert) starts[expert] = before;
      if (warp_.rank() == 0) sums[chunk] = sum;
    });
    block.sync();
    std::uint32_t start = 0;
    int counted = 0;  // chunks
    forEachChunk([&](int chunk, int expert, bool isExpert) {
      MSCCLPP_NO_UNROLL
      for (; counted < chunk; counted += width) {
        const int other = counted + warp_.rank();
        std::uint32_t sum = 0;
        scan::sumOfLanesBefore(warp_, other < chunk ? sums[other] : 0u, sum);
        start += sum;
      }
      counted = chunk;
      if (!isExpert) return;
      const std::uint32_t first = start + starts[expert];
      const std::uint32_t total = placeExpert(placement, expert, first);
      if (expert != experts - 1) return;
      *end = first + placement.aligned(total);
      if (grid_.blockIndex() == 0) placement.offsets[experts] = *end;
    });
    block.sync();
    return *end;
  }

  /// After make(): for each expert the first row of a rank's tokens. [expertsPerRank()]
  MSCCLPP_INLINE std::uint32_t* begins(int from) const {
    return words_ + static_cast<std::size_t>(from) * DispatchCounts::words(dimensions_) + DispatchCounts::firstExpert;
  }

 private:
  static constexpr int width = Warp::width;

  /// Turns an expert's numbers of rows into their beginnings, and returns the sum. One thread.
  MSCCLPP_INLINE std::uint32_t placeExpert(const ExpertPlacement& placement, int expert, std::uint32_t first) const {
    std::uint32_t next = first;
    MSCCLPP_NO_UNROLL
    for (int from = 0; from < dimensions_.ranks; ++from) {
      std::uint32_t& begin = begins(from)[expert];
      const std::uint32_t rows = begin;
      begin = next;
      next += rows;
    }
    if (grid_.blockIndex() == 0) {
      placement.counts[expert] = next - first;
      placement.offsets[expert] = first;
    }
    return next - first;
  }

  const GridType& grid_;
  const Warp& warp_;
  const Dimensions& dimensions_;
  std::uint32_t* words_;
};

}  // namespace mscclpp::moe
