// Counts and placement in a dispatch: what a rank tells the others before its rows, where the rows that it gets belong,
// and whether every rank has room for them. Both forms.
#pragma once

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_table.hpp"

namespace mscclpp::moe::counts {

/// The count word for a rank (DispatchCounts). One thread, once the routing is known.
template <class Call>
MSCCLPP_INLINE std::uint32_t countFor(const Call& call, int to, std::uint32_t word) {
  const auto& args = call.args;
  if (word == DispatchCounts::rowLimit) {
    return args.placement.holdsEveryRouting(args.dimensions) ? DispatchCounts::noLimit : args.placement.capacity;
  }
  const auto expert =
      static_cast<std::uint32_t>(to * args.dimensions.expertsPerRank()) + word - DispatchCounts::firstExpert;
  if constexpr (Call::countsInBlocks) {
    const std::uint32_t tokens = args.routing.tokens;
    return word == DispatchCounts::tokens ? call.routing().countOfRank(to, tokens)
                                          : call.routing().countOfExpert(expert, tokens);
  } else {
    const auto& layout = args.workspace.layout;
    return word == DispatchCounts::tokens ? layout.tokensPerRank[to] : layout.tokensPerExpert[expert];
  }
}

/// Computes where the rows belong, and reports how many there are. Called by all threads, once the block has the counts
/// of every rank. Returns whether the output holds them: the same in all lanes of a warp.
template <class Call>
MSCCLPP_INLINE bool placeRows(Call& call) {
  const auto& args = call.args;
  const auto block = call.grid.block();
  const std::uint32_t end = call.table().make(args.placement);
  if (call.grid.blockIndex() == 0) {
    MSCCLPP_NO_UNROLL
    for (int from = block.rank(); from < args.team.size(); from += block.size()) {
      args.handle.received[from] = call.table().count(from, DispatchCounts::tokens);
    }
    call.session.report(end);
  }
  return end <= args.placement.capacity;
}

/// Waits until every rank has reported whether its output holds its rows. Called by all lanes of a warp; the same in
/// all of them.
template <class Call>
MSCCLPP_INLINE bool allFit(Call& call) {
  const auto& args = call.args;
  MSCCLPP_NO_UNROLL
  for (int from = call.session.warp().rank(); from < args.team.size(); from += Call::width) {
    const std::uint32_t limit = call.table().count(from, DispatchCounts::rowLimit);
    if (limit == DispatchCounts::noLimit) continue;
    const std::uint32_t rows = call.session.awaitReport(from);
    if (hasFailed(call.wait) || rows <= limit) continue;
    const WaitSite site{WaitOperation::Call, args.team.rank(), from, static_cast<std::uint32_t>(call.grid.blockIndex()),
                        limit};
    call.wait.fail(site, WaitOutcome::OutputTooSmall, rows);
  }
  return !call.session.warp().any(hasFailed(call.wait));
}

/// Writes the handle's stamp: Handle::incomplete, or stampOf() the tokens, which is true once the launch has ended
/// without a failure. Called by all threads.
template <class Call>
MSCCLPP_INLINE void stampHandle(const Call& call, std::uint64_t stamp) {
  if (call.grid.blockIndex() == 0 && call.grid.block().rank() == 0) *call.args.handle.stamp = stamp;
}

}  // namespace mscclpp::moe::counts
