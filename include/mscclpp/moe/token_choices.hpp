// The choices of a token, spread over the lanes of a warp, as a row's header holds them.
#pragma once

#include "mscclpp/arch/warp.hpp"
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

  MSCCLPP_INLINE std::uint64_t word(bool isForAll, int to) const {
    return static_cast<std::uint64_t>(weight) << 32 | (isForAll || rank == to ? place : noExpert);
  }
};

/// Lane l has choices l, l + width, ...: one step for all of them, since a short kernel spends its time on fetching
/// instructions.
template <WarpGroup Warp>
struct ChoiceLanes {
  static constexpr int width = Warp::width;
  static constexpr int held = (maxTopk + width - 1) / width;  ///< choices of a lane

  /// The value of a choice, which may be another in each lane; what is beyond the last choice has any value.
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

}  // namespace mscclpp::moe
