// The low-latency form of dispatch: a warp sends and receives single steps of rows, as packets, and waits for nobody
// before it sends.
#pragma once

#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_table.hpp"
#include "mscclpp/moe/step_sender.hpp"
#include "mscclpp/moe/step_storer.hpp"

namespace mscclpp::moe::steps {

/// The indices of a token among those for each rank, for combine: layOutRouting() writes them in the other form.
template <class Call>
MSCCLPP_INLINE void storeRankIndex(const Call& call, std::uint32_t token) {
  const auto& args = call.args;
  MSCCLPP_NO_UNROLL
  for (int rank = call.session.warp().rank(); rank < args.team.size(); rank += Call::width) {
    args.handle
        .rankIndex[std::size_t{token} * static_cast<std::size_t>(args.team.size()) + static_cast<std::size_t>(rank)] =
        call.indexAtRank(token, rank);
  }
}

/// Sends the steps first, first + stride, ... of this rank's rows. prepare() makes the routing known, while the loads
/// of the first step are under way, and returns whether the call goes on, as sendAll() does. Called by all threads.
template <class Call, class Prepare>
MSCCLPP_INLINE bool sendAll(Call& call, std::uint32_t first, std::uint32_t stride, const Prepare& prepare) {
  const std::uint32_t perToken = call.args.scratch.steps();
  const auto items = static_cast<std::uint32_t>(call.args.count) * perToken;
  std::uint32_t item = first;
  bool goesOn = true;
  MSCCLPP_NO_UNROLL
  do {
    const bool isPresent = item < items;
    const std::uint32_t token = item / perToken;
    std::uint32_t none[Call::Lanes::held];
    send(call, {.token = token, .index = item % perToken, .hasHeader = true, .isPresent = isPresent}, Destinations::All,
         none, [&] {
           if (item == first) goesOn = prepare();
           if (!goesOn || !isPresent) return false;
           if (item % perToken == 0) storeRankIndex(call, token);
           return true;
         });
    item += stride;
  } while (goesOn && item < items);
  return goesOn;
}

/// Receives the steps first, first + stride, ... of the rows from all ranks. Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void receiveAll(Call& call, std::uint32_t first, std::uint32_t stride) {
  const std::uint32_t perRow = call.args.scratch.steps();
  std::uint32_t item = first;
  // This rank's own rows arrive first.
  MSCCLPP_NO_UNROLL
  for (int i = call.args.team.size() - 1; i >= 0; --i) {
    const int from = call.session.rankInOrder(i);
    const std::uint32_t items = call.table().count(from, DispatchCounts::tokens) * perRow;
    MSCCLPP_NO_UNROLL
    for (; item < items; item += stride) {
      std::uint32_t positions[Call::Lanes::held];
      const std::uint32_t row = item / perRow;
      const RowStep step{.from = from, .row = row, .index = item % perRow, .hasHeader = true};
      if (!receive(call, step, row, positions)) return;
    }
    item -= items;
  }
}

}  // namespace mscclpp::moe::steps
