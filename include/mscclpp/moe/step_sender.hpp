// Steps of rows as a dispatch sends them: from the source, with the choices of the token, to the slots of each rank
// that gets it.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_slots.hpp"
#include "mscclpp/moe/step_storer.hpp"
#include "mscclpp/moe/token_choices.hpp"

namespace mscclpp::moe::steps {

/// The ranks to which rows are sent: all, those but this one, or this one alone.
enum class Destinations { All, Remote, Own };

/// How the data of rows travels, and so what send() sends.
enum class DataPath {
  Stores,     ///< by stores of the lanes: header, scales and data
  BulkCopies  ///< by the copy engine: header and scales, and the data is not even loaded
};

/// A step of a token's row.
struct TokenStep {
  std::uint32_t token;
  std::uint32_t index;    ///< in the row
  bool hasHeader;         ///< otherwise an earlier step of the row has it
  bool isEarly = false;   ///< sendData() has sent the data to the other ranks
  bool isPresent = true;  ///< otherwise there is no such step, and nothing is loaded or sent
};

/// Sends the packs of a step to the slots of row `place` of a rank. Called by all lanes.
template <class Call>
MSCCLPP_INLINE void sendPacks(const Call& call, int to, std::uint32_t place, std::uint32_t step,
                              const Word128 (&words)[Call::n]) {
  const std::uint32_t packs = call.packsOf(step);
  MSCCLPP_UNROLL
  for (int i = 0; i < Call::n; ++i) {
    const std::uint32_t pack = call.packOf(i);
    if (pack < packs) call.session.send(to, call.args.scratch.dataSlot(place, step * stepPacks + pack), words[i]);
  }
}

/// Sends a step. own: the rows of the token on this rank, which the step with the header determines. meanwhile() is
/// called once the step's loads are under way, and returns whether it is to be sent: not if it is not present. Called
/// by all lanes.
template <DataPath path = DataPath::Stores, class Call, class Meanwhile>
MSCCLPP_INLINE void send(Call& call, TokenStep step, Destinations destinations, std::uint32_t (&own)[Call::Lanes::held],
                         const Meanwhile& meanwhile) {
  constexpr int n = Call::n;
  constexpr int extras = Call::extras;
  constexpr bool hasData = path == DataPath::Stores;
  const auto& args = call.args;
  const std::uint32_t packs = call.packsOf(step.index);
  int scalePacks[extras];
  MSCCLPP_UNROLL
  for (int q = 0; q < extras; ++q) scalePacks[q] = static_cast<int>(call.extraOf(q) - call.header());
  Word128 words[n] = {};
  Word128 scales[extras] = {};
  if (step.isPresent) {
    call.source.load(call.session.warp(), step.token, step.index * stepPacks, hasData ? packs : 0, words, scalePacks,
                     scales);
  }
  if (!meanwhile()) return;
  TokenChoice choices[extras][2];
  if (step.hasHeader) {  // while the row is loaded
    const typename Call::Lanes lanes = call.choicesOf(step.token);
    MSCCLPP_UNROLL
    for (int q = 0; q < extras; ++q) {
      const auto x = static_cast<int>(call.extraOf(q));
      choices[q][0] = lanes.at(call.session.warp(), 2 * x - 1);
      choices[q][1] = lanes.at(call.session.warp(), 2 * x);
      if (x == 0) choices[q][0] = {-1, step.token, 0};
    }
  }
  call.forEachRank(step.token, [&](int to, std::uint32_t row) {
    if (destinations != Destinations::All && (to == args.team.rank()) != (destinations == Destinations::Own)) return;
    const auto extra = [&](int q) {
      if (!step.hasHeader || call.extraOf(q) >= call.header()) return scales[q];
      const bool isFirst = call.extraOf(q) == 0;  // which has the token's index
      return Word128{isFirst ? choices[q][0].word() : choices[q][0].wordFor(to), choices[q][1].wordFor(to)};
    };
    if constexpr (Call::storesOwnRows && hasData) {
      if (to == args.team.rank()) {
        Word128 all[n + extras];
        MSCCLPP_UNROLL
        for (int i = 0; i < n + extras; ++i) all[i] = i < n ? words[i < n ? i : 0] : extra(i < n ? 0 : i - n);
        if (call.fits) store(call, RowStep{to, row, step.index, step.hasHeader}, all, own);
        return;
      }
    }
    const std::uint32_t place = call.placeOf(step.token, row);
    MSCCLPP_UNROLL
    for (int q = 0; q < extras; ++q) {
      const std::uint32_t x = call.extraOf(q);
      if (x < call.extrasOf(packs) && (step.hasHeader || x >= call.header())) {
        call.session.send(to, args.scratch.extraSlot(place, step.index, x), extra(q));
      }
    }
    if constexpr (hasData) {
      if (!step.isEarly) sendPacks(call, to, place, step.index, words);
    }
  });
}

/// Sends the packs of a step of a token's row, without header and scales, to the other ranks, before the routing is
/// laid out. Called by all lanes.
template <class Call>
MSCCLPP_INLINE void sendData(const Call& call, std::uint32_t token, std::uint32_t step) {
  constexpr int extras = Call::extras;
  int none[extras];
  MSCCLPP_UNROLL
  for (int q = 0; q < extras; ++q) none[q] = -1;
  Word128 words[Call::n] = {};
  Word128 scales[extras] = {};
  call.source.load(call.session.warp(), token, step * stepPacks, call.packsOf(step), words, none, scales);
  call.forEachOtherRank(token, [&](int to) { sendPacks(call, to, call.placeOf(token, 0), step, words); });
}

}  // namespace mscclpp::moe::steps
