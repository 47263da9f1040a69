// What dispatch leaves on a rank: the rows of its experts' tokens, expert after expert, and a handle by which combine
// sends the experts' results back.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/routing.hpp"
#include "mscclpp/moe/row_source.hpp"

namespace mscclpp::moe {

/// Where a row comes from. One 16-byte store.
struct alignas(16) RowOrigin {
  std::int32_t rank;
  std::int32_t token;   ///< of that rank
  std::int32_t choice;  ///< 0 for the first of the token's experts on this rank, 1 for the next
  float weight;
};

/// How the rows of this rank's experts are placed. Expert e has rows [offsets[e], offsets[e] + counts[e]), ordered by
/// rank and then token: the placement is the same in every run.
struct ExpertPlacement {
  std::uint32_t capacity;   ///< rows that the output has room for; a call that needs more on a rank fails on all
  std::uint32_t alignment;  ///< offsets are multiples of it: the padding of a grouped GEMM; at least 1
  std::uint32_t stride;     ///< > 0: expert e begins at row e * stride, at least ranks * maxTokens; alignment is 1
  std::uint32_t* counts;    ///< [expertsPerRank()]
  std::uint32_t* offsets;   ///< [expertsPerRank() + 1]; the last is the end of the rows, padding included
  RowOrigin* origins;       ///< [capacity]; may be null. Padding is not written.

  /// Of an output: a negative number ends the rows of a token (Handle::positions).
  static constexpr std::uint64_t mostRows = 0x7fffffff;

  MSCCLPP_HOST_DEVICE bool isValid(const Dimensions& dimensions) const {
    if (alignment == 0 || (stride > 0 && alignment != 1)) return false;
    const auto ranks = static_cast<std::uint64_t>(dimensions.ranks);
    if (stride == 0) return largestCapacity(dimensions, alignment) <= mostRows;
    const std::uint64_t rows = std::uint64_t{stride} * static_cast<std::uint64_t>(dimensions.expertsPerRank());
    return stride >= ranks * dimensions.maxTokens && rows <= mostRows && rows <= capacity;
  }
  /// So many rows with the padding of an expert.
  MSCCLPP_HOST_DEVICE std::uint32_t aligned(std::uint32_t rows) const {
    return (rows + alignment - 1) / alignment * alignment;
  }
  /// Whether there is room for the rows of every routing.
  MSCCLPP_HOST_DEVICE bool holdsEveryRouting(const Dimensions& dimensions) const {
    return stride > 0 || capacity >= largestCapacity(dimensions, alignment);
  }
  /// A capacity without stride that is enough for every routing.
  static MSCCLPP_HOST_DEVICE std::uint64_t largestCapacity(const Dimensions& dimensions, std::uint32_t alignment) {
    const int perRank = dimensions.expertsPerRank();
    const int choices = dimensions.topk < perRank ? dimensions.topk : perRank;
    return std::uint64_t{dimensions.maxTokens} * static_cast<std::uint64_t>(dimensions.ranks) *
               static_cast<std::uint64_t>(choices) +
           static_cast<std::uint64_t>(perRank) * (alignment - 1);
  }
};

/// What combine has to know of a dispatch: arrays in memory of this rank, which dispatch fills in. One for each
/// dispatch whose combine is to come.
struct Handle {
  std::int32_t* rankIndex;  ///< [maxTokens][ranks]: RoutingLayout::rankIndex of this rank's tokens
  std::uint32_t* received;  ///< [ranks]: tokens from each rank
  std::int32_t*
      positions;   ///< [ranks][maxTokens][topk]: rows of each token received, in the order of its choices; then -1
  float* weights;  ///< the same, their weights
  std::uint64_t* stamp;    ///< a word by which combine recognises what dispatch has written: stampOf(), or incomplete
  std::uint32_t identity;  ///< any number of the caller's; combine fails if that of the dispatch was another

  /// What dispatch writes when it has only sent: no stampOf(), since a call has at most 65535 tokens.
  static constexpr std::uint64_t incomplete = ~std::uint64_t{0};
  /// What dispatch writes for a number of tokens of this rank, when it has received all rows.
  MSCCLPP_HOST_DEVICE std::uint64_t stampOf(std::uint64_t tokens) const {
    return std::uint64_t{identity} << 32 | tokens;
  }

  /// Index in `positions` and `weights` of the first entry of a token.
  static MSCCLPP_INLINE std::size_t entry(const Dimensions& dimensions, int from, std::uint32_t row) {
    return (static_cast<std::size_t>(from) * dimensions.maxTokens + row) * static_cast<std::size_t>(dimensions.topk);
  }
  /// Whether this rank's token went to a rank, and its index there.
  MSCCLPP_INLINE std::int32_t indexAt(const Dimensions& dimensions, std::uint32_t token, int rank) const {
    return rankIndex[std::size_t{token} * static_cast<std::size_t>(dimensions.ranks) + static_cast<std::size_t>(rank)];
  }
};

/// Where dispatch stores rows: a sink of Dispatch. Another type with these functions may take its place. One thread
/// calls each, once for each pack of a row and of its scales.
struct ExpertRowArray {
  std::byte* rows;         ///< [capacity], 16-byte aligned
  std::uint32_t rowPacks;  ///< packs of a row
  float* scales;           ///< [capacity][groups of a row]; null: none
  std::uint32_t groups;
  bool streams = false;  ///< the L2 cache does not hold the rows of a call: it had better keep slots and sources

  MSCCLPP_INLINE void pack(std::uint32_t row, std::uint32_t index, const Word128& word) const {
    arch::storeWide(rows + (std::size_t{row} * rowPacks + index) * sizeof(Word128), word, streams);
  }
  /// word: the scales (float) of `count` groups, 1 to 4, from `group` on, which is a multiple of 4. By one store where
  /// it can be: single words take as many stores as the data.
  MSCCLPP_INLINE void scalePack(std::uint32_t row, std::uint32_t group, std::uint32_t count,
                                const Word128& word) const {
    float* const to = scales + std::size_t{row} * groups + group;
    if (count == 4 && reinterpret_cast<std::uintptr_t>(to) % sizeof(Word128) == 0) {
      arch::storeWide(reinterpret_cast<std::byte*>(to), word);
      return;
    }
    const auto values = fromWord<float>(word);
    MSCCLPP_UNROLL
    for (std::uint32_t k = 0; k < 4; ++k) {
      if (k < count) to[k] = values[static_cast<int>(k)];
    }
  }
};

}  // namespace mscclpp::moe
