// Where the rows of a dispatch begin in the output: a table by rank and expert that each block computes for itself.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/routing.hpp"

namespace mscclpp::moe {

/// The memory of a block's table, in words of 32 bits.
MSCCLPP_HOST_DEVICE inline std::size_t rowTableWords(const Dimensions& dimensions) {
  return static_cast<std::size_t>(dimensions.expertsPerRank()) * (static_cast<std::size_t>(dimensions.ranks) + 3) + 1;
}

template <class GridType, class Warp>
class RowTable {
 public:
  /// words: [rowTableWords(dimensions)], of this block.
  MSCCLPP_INLINE RowTable(const GridType& grid, const Warp& warp, const Dimensions& dimensions, std::uint32_t* words)
      : grid_(grid), warp_(warp), dimensions_(dimensions), words_(words) {}

  /// Computes the table; block 0 also writes the counts and offsets of `placement`. rowsOf(rank, expert): their number.
  /// Called by all threads of the block. Returns the end of the rows, padding included, the same in all threads.
  template <class RowsOf>
  MSCCLPP_INLINE std::uint32_t make(const ExpertPlacement& placement, const RowsOf& rowsOf) const {
    const auto block = grid_.block();
    const int experts = dimensions_.expertsPerRank();
    std::uint32_t* const begins = words_;  // [ranks][experts]
    std::uint32_t* const starts = begins + static_cast<std::size_t>(experts * dimensions_.ranks);
    std::uint32_t* const totals = starts + experts;
    std::uint32_t* const sums = totals + experts;  // of the experts of a warp
    std::uint32_t* const end = sums + experts;
    const auto forEachChunk = [&](const auto& f) {
      for (int chunk = grid_.warpIndex(); chunk * width < experts; chunk += grid_.warpCount()) {
        const int expert = chunk * width + warp_.rank();
        f(chunk, expert, expert < experts);
      }
    };
    forEachChunk([&](int chunk, int expert, bool isExpert) {
      std::uint32_t total = 0;
      for (int from = 0; isExpert && from < dimensions_.ranks; ++from) {
        begins[from * experts + expert] = total;
        total += rowsOf(from, expert);
      }
      std::uint32_t sum = 0;
      const std::uint32_t rows = !isExpert ? 0 : placement.stride > 0 ? placement.stride : placement.aligned(total);
      const std::uint32_t before = scan::sumOfLanesBefore(warp_, rows, sum);
      if (isExpert) {
        starts[expert] = before;
        totals[expert] = total;
      }
      if (warp_.rank() == 0) sums[chunk] = sum;
    });
    block.sync();
    std::uint32_t start = 0;
    int counted = 0;  // chunks
    forEachChunk([&](int chunk, int expert, bool isExpert) {
      for (; counted < chunk; counted += width) {
        const int other = counted + warp_.rank();
        std::uint32_t sum = 0;
        scan::sumOfLanesBefore(warp_, other < chunk ? sums[other] : 0u, sum);
        start += sum;
      }
      counted = chunk;
      if (!isExpert) return;
      const std::uint32_t first = start + starts[expert];
      for (int from = 0; from < dimensions_.ranks; ++from) begins[from * experts + expert] += first;
      if (expert == experts - 1) {
        *end = first + (placement.stride > 0 ? placement.stride : placement.aligned(totals[expert]));
      }
      if (grid_.blockIndex() != 0) return;
      placement.counts[expert] = totals[expert];
      placement.offsets[expert] = first;
      if (expert == experts - 1) placement.offsets[experts] = *end;
    });
    block.sync();
    return *end;
  }

  /// After make(): for each expert the first row of a rank's tokens. [expertsPerRank()]
  MSCCLPP_INLINE const std::uint32_t* begins(int from) const {
    return words_ + static_cast<std::size_t>(from) * static_cast<std::size_t>(dimensions_.expertsPerRank());
  }

 private:
  static constexpr int width = Warp::width;

  const GridType& grid_;
  const Warp& warp_;
  const Dimensions& dimensions_;
  std::uint32_t* words_;
};

}  // namespace mscclpp::moe
