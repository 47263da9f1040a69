// The choices of a token, spread over the lanes of a warp, as a row's header holds them.
#pragma once

#include "mscclpp/arch/warp.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/routing.hpp"

namespace mscclpp::moe {

/// What the header of a row says of a choice that does not concern the receiver.
inline constexpr std::uint32_t noExpert = 0xffffffffu;

/// A header has 64-bit words: the token's index, then for each choice of it the local expert, the index of the token
/// among those of its rank for that expert, and the weight.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t headerPacks(int topk) {
  return static_cast<std::uint32_t>(topk + 2) / 2;
}

/// A choice of a token, as a word of a header says it, but for the rank.
struct TokenChoice {
  int rank;             ///< -1: of no rank
  std::uint32_t place;  ///< index << 16 | local expert; noExpert: none
  std::uint32_t weight;

  /// For any rank.
  MSCCLPP_INLINE std::uint64_t word() const { return static_cast<std::uint64_t>(weight) << 32 | place; }
  /// For a rank, which is told of its own experts only.
  MSCCLPP_INLINE std::uint64_t wordFor(int to) const {
    return static_cast<std::uint64_t>(weight) << 32 | (rank == to ? place : noExpert);
  }
};

/// Lane l has choices l, l + width, ...: one step for all of them, since a short kernel spends its time on fetching
/// instructions.
template <WarpGroup Warp>
struct ChoiceLanes {
  static constexpr int width = Warp::width;
  static constexpr int held = (maxTopk + width - 1) / width;  ///< choices of a lane

  /// The value of a choice, another in each lane if it has to be; what is beyond the last choice has any value.
  /// Called by all lanes.
  static MSCCLPP_INLINE std::uint32_t valueOf(const Warp& warp, const std::uint32_t (&values)[held], int choice) {
    std::uint32_t value = 0;
    MSCCLPP_UNROLL
    for (int h = 0; h < held; ++h) {
      const std::uint32_t ofLane = warp.shuffle(values[h], choice & (width - 1));
      if (held == 1 || choice / width == h) value = ofLane;
    }
    return value;
  }
  static MSCCLPP_INLINE int choiceOf(const Warp& warp, int h) { return h * width + warp.rank(); }

  int ranks[held];
  std::uint32_t places[held];
  std::uint32_t weights[held];

  /// The choices of a token. indexAt(place in the arrays of the routing, expert): the index of the token among those of
  /// its rank for the expert, or noExpert. dropsRepeated: it is not asked for choices that do not count: an expert that
  /// does not exist, or that was chosen before. Called by all lanes.
  template <bool dropsRepeated, class Index, class IndexAt>
  static MSCCLPP_INLINE ChoiceLanes load(const Warp& warp, const Routing<Index>& routing, const Dimensions& dimensions,
                                         std::uint32_t token, const IndexAt& indexAt) {
    const auto perRank = static_cast<std::uint32_t>(dimensions.expertsPerRank());
    const std::size_t first = std::size_t{token} * static_cast<std::size_t>(dimensions.topk);
    ChoiceLanes lanes;
    std::uint32_t experts[held];
    MSCCLPP_UNROLL
    for (int h = 0; h < held; ++h) {
      const int choice = choiceOf(warp, h);
      const std::size_t at = first + static_cast<std::size_t>(choice);
      const bool isChoice = choice < dimensions.topk;
      const Index expert = isChoice ? routing.experts[at] : Index{-1};
      const float weight = isChoice && routing.weights != nullptr ? routing.weights[at] : 1.0f;
      const bool exists = expert >= 0 && expert < static_cast<Index>(dimensions.experts);
      experts[h] = exists ? static_cast<std::uint32_t>(expert) : noExpert;
      lanes.weights[h] = arch::bitCast<std::uint32_t>(weight);
      if constexpr (!dropsRepeated) lanes.places[h] = isChoice ? indexAt(at, experts[h]) : noExpert;
    }
    if constexpr (dropsRepeated) {
      std::uint32_t chosen[held];
      MSCCLPP_UNROLL
      for (int h = 0; h < held; ++h) chosen[h] = experts[h];
      MSCCLPP_NO_UNROLL
      for (int earlier = 0; earlier < dimensions.topk - 1; ++earlier) {
        const std::uint32_t expert = valueOf(warp, chosen, earlier);
        MSCCLPP_UNROLL
        for (int h = 0; h < held; ++h) {
          if (choiceOf(warp, h) > earlier && experts[h] == expert) experts[h] = noExpert;
        }
      }
      MSCCLPP_UNROLL
      for (int h = 0; h < held; ++h) {
        const std::size_t at = first + static_cast<std::size_t>(choiceOf(warp, h));
        lanes.places[h] = experts[h] == noExpert ? noExpert : indexAt(at, experts[h]);
      }
    }
    MSCCLPP_UNROLL
    for (int h = 0; h < held; ++h) {
      const bool counts = lanes.places[h] != noExpert;
      const std::uint32_t rank = experts[h] / perRank;
      lanes.ranks[h] = counts ? static_cast<int>(rank) : -1;
      lanes.places[h] = counts ? lanes.places[h] << 16 | (experts[h] - rank * perRank) : noExpert;
    }
    return lanes;
  }

  /// Choice `choice`, or none if there is no such choice. Called by all lanes.
  MSCCLPP_INLINE TokenChoice at(const Warp& warp, int choice) const {
    std::uint32_t unsignedRanks[held];
    MSCCLPP_UNROLL
    for (int h = 0; h < held; ++h) unsignedRanks[h] = static_cast<std::uint32_t>(ranks[h]);
    const auto rank = static_cast<int>(valueOf(warp, unsignedRanks, choice));
    const std::uint32_t place = valueOf(warp, places, choice);
    const std::uint32_t weight = valueOf(warp, weights, choice);
    if (choice < 0 || choice >= maxTopk) return {-1, noExpert, 0};
    return {rank, place, weight};
  }
};

/// Half of a word of a header, another in each lane if it has to be: the lower or, with a shift of 32, the upper one.
/// Lane l has the header's packs l, l + width, .... Called by all lanes.
template <WarpGroup Warp, int held>
MSCCLPP_INLINE std::uint32_t headerWord(const Warp& warp, const Word128 (&packs)[held], int word, int shift) {
  constexpr int width = Warp::width;
  std::uint32_t value = 0;
  MSCCLPP_UNROLL
  for (int h = 0; h < held; ++h) {
    const int lane = word / 2 & (width - 1);
    const std::uint32_t lo = warp.shuffle(static_cast<std::uint32_t>(packs[h].lo >> shift), lane);
    const std::uint32_t hi = warp.shuffle(static_cast<std::uint32_t>(packs[h].hi >> shift), lane);
    if (held == 1 || word / 2 / width == h) value = word % 2 == 0 ? lo : hi;
  }
  return value;
}

}  // namespace mscclpp::moe
