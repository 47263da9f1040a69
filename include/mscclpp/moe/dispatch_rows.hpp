// The bandwidth form of dispatch: a warp sends whole rows and then publishes each, or receives rows that have been
// published. The rows from a rank to itself are stored at once.
#pragma once

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_table.hpp"
#include "mscclpp/moe/step_sender.hpp"
#include "mscclpp/moe/step_storer.hpp"

namespace mscclpp::moe::wholeRows {

/// Announces a token's row to the other ranks. Called by all lanes of the warp that has sent it.
template <class Call>
MSCCLPP_INLINE void publish(const Call& call, std::uint32_t token) {
  call.forEachRank(token, [&](int to, std::uint32_t row) {
    if (to != call.args.team.rank()) call.session.publish(to, row, 0, call.placeOf(token, row));
  });
}

/// While the first blocks lay out the routing, the others send their warps' first rows to other ranks, but for the
/// headers: the link would be idle. Called by all threads of each block. Returns whether the call goes on, the same in
/// all threads of the block.
template <class Call>
MSCCLPP_INLINE bool sendEarly(Call& call, const typename Call::Work& work) {
  const auto& args = call.args;
  if (!call.isEarly()) return true;
  if (!call.session.awaitEntries()) return false;
  const auto tokens = static_cast<std::uint32_t>(args.count);
  const std::uint32_t token = work.share.first();
  if (!work.share.sends || work.destinations == steps::Destinations::Own || token >= tokens) return true;
  const std::uint32_t perRow = args.scratch.steps();
  MSCCLPP_NO_UNROLL
  for (std::uint32_t step = 0; step < perRow; ++step) steps::sendData(call, token, step);
  return true;
}

/// Sends this rank's rows first, first + stride, ... by stores; those to itself are where they belong then. isEarly:
/// sendEarly() has sent the first row's data. A row is announced once the first loads of the next one are under way,
/// since the release of its flags takes as long as they do. Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void sendAll(Call& call, steps::Destinations destinations, bool isEarly, std::uint32_t first,
                            std::uint32_t stride) {
  const auto& args = call.args;
  const std::uint32_t perRow = args.scratch.steps();
  const auto tokens = static_cast<std::uint32_t>(args.count);
  const bool publishes = destinations != steps::Destinations::Own;
  MSCCLPP_NO_UNROLL
  for (std::uint32_t token = first; token < tokens; token += stride) {
    std::uint32_t own[Call::Lanes::held];
    if (!publishes && args.handle.indexAt(args.dimensions, token, args.team.rank()) < 0) continue;
    MSCCLPP_NO_UNROLL
    for (std::uint32_t step = 0; step < perRow; ++step) {
      steps::send(call, {.token = token, .index = step, .hasHeader = step == 0, .isEarly = isEarly && token == first},
                  destinations, own, [&] {
                    if (publishes && step == 0 && token != first) publish(call, token - stride);
                    return true;
                  });
    }
    if (publishes && token + stride >= tokens) publish(call, token);
  }
}

/// Stores the rows from this rank to itself, where others are sent by bulk copies: in all warps that do not send, or in
/// all if every one does. Called by all threads.
template <class Call>
MSCCLPP_INLINE void storeOwn(Call& call, Phase phase) {
  const auto& grid = call.grid;
  const int warps = grid.warpCount();
  const int others = warps - call.session.senders(phase, call.mostSenders());
  const int first = others > 0 ? grid.warpIndex() - (warps - others) : grid.warpIndex();
  if (first < 0) return;
  const auto blocks = static_cast<std::uint32_t>(grid.blockCount());
  const std::uint32_t stride = static_cast<std::uint32_t>(others > 0 ? others : warps) * blocks;
  constexpr bool isEarly = false;
  sendAll(call, steps::Destinations::Own, isEarly,
          static_cast<std::uint32_t>(first) * blocks + static_cast<std::uint32_t>(grid.blockIndex()), stride);
}

/// Receives the rows first, first + stride, ... from the other ranks. Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void receiveAll(Call& call, std::uint32_t first, std::uint32_t stride) {
  const std::uint32_t perRow = call.args.scratch.steps();
  std::uint32_t row = first;
  MSCCLPP_NO_UNROLL
  for (int i = call.args.team.size() - 2; i >= 0; --i) {
    const int from = call.session.rankInOrder(i);
    const std::uint32_t rows = call.table().count(from, DispatchCounts::tokens);
    MSCCLPP_NO_UNROLL
    for (; row < rows; row += stride) {
      std::uint32_t positions[Call::Lanes::held];
      const std::uint32_t place = call.session.warp().shuffle(call.session.await(from, row, 0), 0);
      if (call.session.warp().any(hasFailed(call.wait))) return;
      MSCCLPP_NO_UNROLL
      for (std::uint32_t step = 0; step < perRow; ++step) {
        const steps::RowStep rowStep{.from = from, .row = row, .index = step, .hasHeader = step == 0};
        if (!steps::receive(call, rowStep, place, positions)) return;
      }
    }
    row -= rows;
  }
}

}  // namespace mscclpp::moe::wholeRows
