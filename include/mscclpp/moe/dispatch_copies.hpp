// The bulk copies of the bandwidth form of dispatch: the copy engine writes a row to each rank that gets it.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/dispatch_rows.hpp"
#include "mscclpp/moe/step_sender.hpp"

namespace mscclpp::moe::wholeRows {

/// Sends this rank's rows first, first + stride, ... to other ranks by bulk copies. The lanes send headers and scales.
/// Called by all lanes of a warp.
template <class Call>
MSCCLPP_INLINE void copyAll(Call& call, std::uint32_t first, std::uint32_t stride) {
  using Transport = typename Call::Transport;
  using Queue = typename Transport::template Queue<Call::Memory::destinations>;
  const auto& args = call.args;
  const auto& warp = call.session.warp();
  Queue queue(warp, reinterpret_cast<typename Queue::Scratch*>(call.grid.sharedMemory())[call.grid.warpIndex()]);
  const std::uint32_t perRow = args.scratch.steps();
  const auto tokens = static_cast<std::uint32_t>(args.count);
  const std::size_t bytes = std::size_t{args.scratch.rowPacks} * sizeof(Word128);
  const auto forEachOfBatch = [&](std::uint32_t begin, const auto& f) {
    for (std::uint32_t i = 0; i < Transport::rowsAtOnce; ++i) {
      if (begin + i * stride < tokens) f(begin + i * stride);
    }
  };
  for (std::uint32_t begin = first; begin < tokens; begin += Transport::rowsAtOnce * stride) {
    forEachOfBatch(begin, [&](std::uint32_t token) {
      const auto forEachDestination = [&](const auto& f) {
        call.forEachRank(token, [&](int to, std::uint32_t row) {
          if (to != args.team.rank()) f(call.session.slotAt(to, args.scratch.dataSlot(call.placeOf(token, row), 0)));
        });
      };
      queue.copyToEach(warp, forEachDestination, call.source.row(token), bytes, call.wait);
    });
    // While the copies are under way.
    forEachOfBatch(begin, [&](std::uint32_t token) {
      std::uint32_t none[Call::Lanes::held];
      MSCCLPP_NO_UNROLL
      for (std::uint32_t step = 0; step < perRow; ++step) {
        steps::send<steps::DataPath::BulkCopies>(call, {.token = token, .index = step, .hasHeader = step == 0},
                                                 steps::Destinations::Remote, none, [] { return true; });
      }
    });
    Transport::complete(queue, warp, call.wait);
    if (warp.any(hasFailed(call.wait))) break;
    forEachOfBatch(begin, [&](std::uint32_t token) { publish(call, token); });
  }
  queue.finish(warp, call.wait);
}

}  // namespace mscclpp::moe::wholeRows
