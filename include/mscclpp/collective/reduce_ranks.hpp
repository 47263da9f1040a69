// The reduction of the packs of any number of ranks, with the loads of several in flight, and waits that name a rank.
#pragma once

#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/rows.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace rows {

/// Receives the words at `at` that N ranks, `first` and the following, send to this one, and resets their slots. Ranks
/// beyond the team and this one are left out. They are awaited one after the other, so that a wait that fails names the
/// rank, but each attempt loads what is missing of all: one load after the other, each would take a trip to the memory.
/// Called by each thread by itself. Returns whether they arrived.
template <class P, int N, class Warp, WaitPolicy Wait, int Ranks, class SlotsOf>
MSCCLPP_INLINE bool receiveRanks(const Warp& warp, Wait& wait, WaitSite site, const Team<Ranks>& team, int first,
                                 const SlotsOf& slotsOf, const RowPosition& at, std::uint64_t epoch,
                                 Word128 (&words)[N]) {
  static_assert(!P::needsFullWarp, "the threads of a warp may wait for different ranks");
  std::byte* slots[N];
  bool sends[N];
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) {
    sends[i] = first + i < team.size() && first + i != team.rank();
    slots[i] = slotsOf(sends[i] ? first + i : 0);
  }
  typename P::Fetched fetched[N] = {};
  unsigned failures = 0;
  MSCCLPP_NO_UNROLL
  for (int next = 0; next < N;) {  // what is before it has arrived
    int missing = N;
    const auto findMissing = [&](const auto& hasArrived) {
      missing = N;
      MSCCLPP_UNROLL
      for (int i = N - 1; i >= 0; --i) {
        if (i >= next && sends[i] && !hasArrived(i)) missing = i;
      }
    };
    const auto attempt = [&](std::uint64_t& seen) {
      MSCCLPP_UNROLL
      for (int i = 0; i < N; ++i) {
        if (i >= next && sends[i]) fetched[i] = P::fetch(warp, slots[i], at.row, epoch);
      }
      findMissing([&](int i) { return P::arrived(warp, slots[i], at.row, fetched[i], epoch); });
      if constexpr (requires { P::attemptsPerEscapeCheck; }) {
        if (missing == next && ++failures % P::attemptsPerEscapeCheck == 0) {
          findMissing([&](int i) { return P::arrivedEscaped(warp, slots[i], at.row, fetched[i], epoch); });
        }
      }
      seen = missing > next ? epoch : 0;
      return missing > next;
    };
    site.peer = first + next;
    if (!wait.until(site, attempt)) return false;
    next = missing;
  }
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) {
    if (!sends[i]) continue;
    words[i] = P::received(warp, fetched[i]);
    P::resetSlot(warp, slots[i], at.row);
  }
  return true;
}

/// Receives the words of all other ranks and reduces them with `word`, this rank's, in rank order from 0, so that every
/// rank computes the same bits. slotsOf(rank) is the slot array that `rank` writes for this rank; atOnce: the ranks
/// whose loads are in flight together. Called by each thread by itself. Returns whether they arrived; if not, `word` is
/// as before.
template <class P, class T, int atOnce, class Warp, WaitPolicy Wait, int Ranks, class SlotsOf, class Op>
MSCCLPP_INLINE bool reduceRanks(const Warp& warp, Wait& wait, const WaitSite& site, const Team<Ranks>& team,
                                const SlotsOf& slotsOf, const RowPosition& at, std::uint64_t epoch, Word128& word,
                                const Op& op) {
  PackReducer<T, Op> reducer(fromWord<T>(word), op);
  MSCCLPP_NO_UNROLL
  for (int first = 0; first < team.size(); first += atOnce) {
    Word128 words[atOnce];
    MSCCLPP_UNROLL
    for (int i = 0; i < atOnce; ++i) words[i] = word;
    if (!receiveRanks<P, atOnce>(warp, wait, site, team, first, slotsOf, at, epoch, words)) return false;
    MSCCLPP_UNROLL
    for (int i = 0; i < atOnce; ++i) {
      if (i == 0 && first == 0) {
        reducer = PackReducer<T, Op>(fromWord<T>(words[i]), op);
      } else if (first + i < team.size()) {
        reducer.add(fromWord<T>(words[i]));
      }
    }
  }
  word = toWord<T>(reducer.finish(team.size()));
  return true;
}

}  // namespace rows
}  // namespace mscclpp
