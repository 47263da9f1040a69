// The barrier of all ranks between copies that the host has enqueued: a kernel of one block.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/team_barrier.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::kernels {

/// A TeamBarrier that no longer arrives once it has failed on this rank. The copies after it may be enqueued already
/// and run at the wrong time, so the peers must not learn that they are complete: their next barrier fails too.
///
/// Releases and acquires at system scope. As a kernel it runs after the copies before it in the stream, and what comes
/// next in the stream runs after it.
struct MoverBarrier {
  struct Args {
    Team<> team;
    /// windowBytes(ranks) bytes on each rank, zero-filled: the barrier's words, and two words of this rank, which
    /// advance on the device so that a captured graph replays.
    Window<> window;
    BoundedWait wait;
  };

  /// One warp, which the registers of its kernel count on.
  static constexpr int maxBlockThreads = 32;

  static constexpr MSCCLPP_HOST_DEVICE std::size_t windowBytes(int ranks) {
    return localWords(ranks) + 2 * sizeof(std::uint64_t);
  }

  /// Called by all threads of a grid of one block. Returns false if it has failed, now or earlier.
  template <class GridType>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args) {
    const auto block = grid.block();
    auto* words = reinterpret_cast<std::uint64_t*>(args.window.at(args.team.rank(), localWords(args.team.size())));
    std::uint64_t* stopped = words + 1;
    if (arch::load<arch::Order::Relaxed, arch::Scope::Device>(stopped) != 0) return false;
    BoundedWait wait = args.wait;
    // It begins with a sync of the block: all threads have read the word before one of them writes it.
    const bool arrived = TeamBarrier<>{args.team, args.window, words}.sync(block, wait);
    if (!arrived) arch::store<arch::Order::Relaxed, arch::Scope::Device>(stopped, std::uint64_t{1});
    return arrived;
  }

 private:
  /// On a line of their own: the peers write the words before.
  static constexpr MSCCLPP_HOST_DEVICE std::size_t localWords(int ranks) {
    constexpr std::size_t line = 128;
    return (TeamBarrier<>::windowBytes(ranks) + line - 1) / line * line;
  }
};

}  // namespace mscclpp::kernels
