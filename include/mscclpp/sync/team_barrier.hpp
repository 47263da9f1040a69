// Barrier of the ranks of a team: each rank writes its epoch to a word at every peer, and waits for theirs. One word
// per pair of ranks, one hop, no root.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// Device view. A barrier synchronises one group per rank at a time, such as block b of every rank. The window has
/// windowBytes(size) bytes, zero-initialised. epoch: a local 64-bit word, zero-initialised; it advances on the device,
/// so that a captured graph replays correctly.
template <int Ranks = 0>
struct TeamBarrier {
  Team<Ranks> team;
  Window<Ranks> window;
  std::uint64_t* epoch;

  static constexpr MSCCLPP_HOST_DEVICE std::size_t windowBytes(int size) {
    return static_cast<std::size_t>(size) * sizeof(std::uint64_t);
  }

  /// Waits until every rank has called it. Called by all threads of group. AcqRel: what the group's threads wrote
  /// before is visible to every rank's group afterwards. Relaxed: orders no other accesses, and is about 0.5 us faster.
  /// block: for records only. Returns false if a wait of the calling thread failed.
  template <arch::Order order = arch::Order::AcqRel, ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool sync(const Group& group, Wait& wait, std::uint32_t block = 0) {
    static_assert(order == arch::Order::AcqRel || order == arch::Order::Relaxed, "a barrier is AcqRel or Relaxed");
    constexpr bool ordered = order == arch::Order::AcqRel;
    constexpr arch::Order arrive = ordered ? arch::Order::Release : arch::Order::Relaxed;
    constexpr arch::Order observe = ordered ? arch::Order::Acquire : arch::Order::Relaxed;
    const std::uint64_t next = *epoch + 1;
    bool arrived = true;
    group.sync();
    if (group.rank() == 0)
      *epoch = next;  // between the two syncs: all threads have read it, and none reads it again before the second
    for (int i = group.rank(); i < team.size() - 1; i += group.size()) {
      arch::store<arrive, arch::Scope::System>(word(team.peer(i), team.rank()), next);
    }
    for (int i = group.rank(); i < team.size() - 1; i += group.size()) {
      const int peer = team.peer(i);
      arrived &=
          wait.until(WaitSite{WaitOperation::TeamBarrier, team.rank(), peer, block, next}, [&](std::uint64_t& seen) {
            seen = arch::load<observe, arch::Scope::System>(word(team.rank(), peer));
            return seen >= next;
          });
    }
    group.sync();
    return arrived;
  }

 private:
  MSCCLPP_INLINE std::uint64_t* word(int at, int from) const {
    return reinterpret_cast<std::uint64_t*>(window.at(at)) + from;
  }
};

}  // namespace mscclpp
