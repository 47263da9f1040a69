// Steps of rows as a dispatch receives them: from the slots to the rows of the experts, and what the header of a row
// says to the handle.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/row_source.hpp"
#include "mscclpp/moe/token_choices.hpp"

namespace mscclpp::moe::steps {

/// A step of a row from a rank.
struct RowStep {
  int from;
  std::uint32_t row;    ///< among those from the rank
  std::uint32_t index;  ///< in the row
  bool hasHeader;       ///< otherwise an earlier step of the row has it
};

/// The rows of the choices, noExpert for those of other ranks. The first step's warp also writes the handle and the
/// origins. Called by all lanes.
template <class Call>
MSCCLPP_INLINE void readHeader(const Call& call, const RowStep& step, const Word128 (&words)[Call::n + Call::extras],
                               std::uint32_t (&positions)[Call::Lanes::held]) {
  using Lanes = typename Call::Lanes;
  const auto& args = call.args;
  const auto& warp = call.session.warp();
  const std::uint32_t* const begins = call.table().begins(step.from);
  Word128 packs[Call::extras];
  MSCCLPP_UNROLL
  for (int q = 0; q < Call::extras; ++q) packs[q] = words[Call::n + q];
  const std::size_t entry = Handle::entry(args.dimensions, step.from, step.row);
  const std::uint32_t token = headerWord(warp, packs, 0, 0);
  const std::uint32_t lanesBefore = (1u << warp.rank()) - 1;
  int choices = 0;
  MSCCLPP_UNROLL
  for (int h = 0; h < Lanes::held; ++h) {
    const int number = Lanes::choiceOf(warp, h);
    const std::uint32_t place = headerWord(warp, packs, number + 1, 0);
    const std::uint32_t weight = headerWord(warp, packs, number + 1, 32);
    const bool isOwn = number < args.dimensions.topk && place != noExpert;
    const std::uint32_t own = warp.ballot(isOwn);
    const int choice = choices + arch::countBits(own & lanesBefore);
    choices += arch::countBits(own);
    positions[h] = isOwn ? begins[place & 0xffffu] + (place >> 16) : noExpert;
    if (step.index != 0 || !isOwn) continue;
    args.handle.positions[entry + static_cast<std::size_t>(choice)] = static_cast<std::int32_t>(positions[h]);
    args.handle.weights[entry + static_cast<std::size_t>(choice)] = arch::bitCast<float>(weight);
    if (args.placement.origins != nullptr) {
      arch::storeWide(args.placement.origins + positions[h],
                      arch::bitCast<Word128>(RowOrigin{step.from, static_cast<std::int32_t>(token), choice,
                                                       arch::bitCast<float>(weight)}));
    }
  }
  if (step.index == 0 && warp.rank() == 0 && choices < args.dimensions.topk) {
    args.handle.positions[entry + static_cast<std::size_t>(choices)] = -1;
  }
}

/// Stores a step of a row for each of its experts. words: the packs of data and the extra packs of each lane.
/// positions: the rows in which the token belongs; read from the header, if the step has one. Called by all lanes.
template <class Call>
MSCCLPP_INLINE void store(const Call& call, const RowStep& step, const Word128 (&words)[Call::n + Call::extras],
                          std::uint32_t (&positions)[Call::Lanes::held]) {
  const std::uint32_t packs = call.packsOf(step.index);
  if (step.hasHeader) readHeader(call, step, words, positions);
  MSCCLPP_NO_UNROLL
  for (int j = 0; j < call.args.dimensions.topk; ++j) {
    const std::uint32_t position = Call::Lanes::valueOf(call.session.warp(), positions, j);
    if (position == noExpert) continue;
    MSCCLPP_UNROLL
    for (int i = 0; i < Call::n; ++i) {
      const std::uint32_t pack = call.packOf(i);
      if (pack < packs) call.sink.pack(position, step.index * stepPacks + pack, words[i]);
    }
    if constexpr (Call::Source::hasScales) {
      MSCCLPP_UNROLL
      for (int q = 0; q < Call::extras; ++q) {
        const std::uint32_t x = call.extraOf(q);
        if (x < call.header() || x >= call.extrasOf(packs)) continue;
        const std::uint32_t first = (x - call.header()) * 4;
        const std::uint32_t left = (packs + groupPacks - 1) / groupPacks - first;
        call.sink.scalePack(position, step.index * stepGroups + first, left < 4 ? left : 4, words[Call::n + q]);
      }
    }
  }
}

/// Receives a step from the slots of row `place`, and stores it. Called by all lanes. Returns whether it
/// arrived, the same in all of them.
template <class Call>
MSCCLPP_INLINE bool receive(Call& call, const RowStep& step, std::uint32_t place,
                            std::uint32_t (&positions)[Call::Lanes::held]) {
  constexpr int n = Call::n;
  constexpr int all = n + Call::extras;
  const auto& slotsOf = call.args.scratch;
  const std::uint32_t packs = call.packsOf(step.index);
  int ranks[all];
  std::uint32_t slots[all];
  bool isPresent[all];
  Word128 words[all] = {};
  MSCCLPP_UNROLL
  for (int i = 0; i < all; ++i) {
    ranks[i] = step.from;
    if (i < n) {
      const std::uint32_t pack = call.packOf(i);
      slots[i] = slotsOf.dataSlot(place, step.index * stepPacks + pack);
      isPresent[i] = pack < packs;
    } else {
      const std::uint32_t x = call.extraOf(i - n);
      slots[i] = slotsOf.extraSlot(place, step.index, x);
      isPresent[i] = x < call.extrasOf(packs) && (step.hasHeader || x >= call.header());
    }
  }
  call.session.template receive<all>(ranks, slots, isPresent, words, call.args.streams);
  if (call.session.warp().any(hasFailed(call.wait))) return false;
  store(call, step, words, positions);
  return true;
}

}  // namespace mscclpp::moe::steps
