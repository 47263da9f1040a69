// Rows of packs: what a warp of a packet collective does with the packs that its lanes hold.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace rows {

/// A number of packs, or of rows of packs, of a message that fits in scratch: 2^32 packs are 64 GiB. 32 bits, since a
/// packet kernel mostly computes addresses.
using PackCount = std::uint32_t;

/// The position of a thread's pack of a row in a slot array.
struct RowPosition {
  PackCount row;
  PackCount pack;
  bool active;   ///< the thread holds a pack of the message
  bool present;  ///< the thread takes part in sending and receiving the row
};

/// The number of rows for `packs` packs.
template <class P, class Warp>
MSCCLPP_INLINE PackCount rowsOf(PackCount packs) {
  constexpr auto perRow = static_cast<PackCount>(P::packsPerRow(Warp::width));
  return (packs + perRow - 1) / perRow;
}

/// The position of the calling thread in `row` of a slot array with `packs` packs.
template <class P, class Warp>
MSCCLPP_INLINE RowPosition position(const Warp& warp, PackCount row, PackCount packs) {
  constexpr auto perRow = static_cast<PackCount>(P::packsPerRow(Warp::width));
  const auto lane = static_cast<PackCount>(warp.rank());
  const PackCount pack = row * perRow + lane;
  const bool active = lane < perRow && pack < packs;
  return {row, pack, active, P::needsFullWarp ? row * perRow < packs : active};
}

/// Send: writes a row to a slot array. Here and below, a word is a pack as encoded by P; all lanes of the warp call.
template <class P, class Warp>
MSCCLPP_INLINE void send(const Warp& warp, std::byte* slots, const RowPosition& at, const Word128& word,
                         std::uint64_t epoch) {
  if (at.present) P::write(warp, slots, at.row, word, epoch);
}

/// One attempt to receive packs from N slot arrays, with all loads issued before the first is checked. Returns whether
/// all packs have arrived.
template <class P, int N, class Warp>
MSCCLPP_INLINE bool tryReceive(const Warp& warp, std::byte* const (&slots)[N], const RowPosition (&at)[N],
                               std::uint64_t epoch, typename P::Fetched (&fetched)[N], unsigned& failures) {
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) {
    if (at[i].present) fetched[i] = P::fetch(warp, slots[i], at[i].row, epoch);
  }
  // No branches for absent packs: predicates are cheaper.
  bool complete = true;
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) complete &= !at[i].present | P::arrived(warp, slots[i], at[i].row, fetched[i], epoch);
  if constexpr (requires { P::attemptsPerEscapeCheck; }) {
    if (!complete && ++failures % P::attemptsPerEscapeCheck == 0) {
      complete = true;
      MSCCLPP_UNROLL
      for (int i = 0; i < N; ++i)
        complete &= !at[i].present | P::arrivedEscaped(warp, slots[i], at[i].row, fetched[i], epoch);
    }
  }
  return complete;
}

/// Receive: waits for words from N slot arrays, with the loads in flight together, then resets the slots for their next
/// use. Returns false if the wait failed.
template <class P, int N, class Warp, WaitPolicy Wait>
MSCCLPP_INLINE bool receive(const Warp& warp, Wait& wait, const WaitSite& site, std::byte* const (&slots)[N],
                            const RowPosition (&at)[N], std::uint64_t epoch, Word128 (&words)[N]) {
  typename P::Fetched fetched[N] = {};
  unsigned failures = 0;
  const auto attempt = [&](std::uint64_t& seen) {
    const bool complete = tryReceive<P, N>(warp, slots, at, epoch, fetched, failures);
    seen = complete ? epoch : 0;
    return complete;
  };
  bool arrived = false;
  if constexpr (P::needsFullWarp) {
    arrived = wait.untilCollective(warp, site, attempt);
  } else {
    arrived = wait.until(site, attempt);
  }
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) {
    if (at[i].present) {
      words[i] = P::received(warp, fetched[i]);
      P::resetSlot(warp, slots[i], at[i].row);
    }
  }
  return arrived;
}

/// Whether the call of this epoch must clear the slots that it did not use, because 32-bit flags repeat
/// (packet/packet_rows.hpp). sets: the sets of slots between which calls alternate.
template <class P>
MSCCLPP_INLINE bool mustClear(std::uint64_t epoch, std::uint64_t sets = 2) {
  if constexpr (requires { P::clearInterval; }) {
    return epoch % P::clearInterval < sets;
  } else {
    return false;
  }
}

/// Clear: resets the slots of an array after the first `used` packs. Called by every warp, with its first row and the
/// number of warps.
template <class P, class Warp>
MSCCLPP_INLINE void clear([[maybe_unused]] const Warp& warp, [[maybe_unused]] std::byte* slots, PackCount firstRow,
                          PackCount stride, PackCount used, PackCount capacity) {
  if constexpr (requires { P::clearInterval; }) {
    MSCCLPP_NO_UNROLL
    for (PackCount row = firstRow; row < rowsOf<P, Warp>(capacity); row += stride) {
      const auto at = position<P>(warp, row, capacity);
      if (at.active && at.pack >= used) P::clear(warp, slots, row);
    }
  }
}

/// Reduce: receives the words of all peers and reduces them with this rank's, in rank order from 0, so that every rank
/// computes the same bits. slotsOf(rank) is the slot array that `rank` writes for this rank.
template <class P, class T, int Ranks, class Warp, WaitPolicy Wait, class SlotsOf, class Op>
MSCCLPP_INLINE Word128 reduce(const Warp& warp, Wait& wait, WaitSite site, const Team<Ranks>& team,
                              const SlotsOf& slotsOf, const RowPosition& at, std::uint64_t epoch, const Word128& own,
                              const Op& op) {
  if constexpr (Ranks > 1) {
    // All peers' loads are in flight together; this rank's own entry is not used.
    std::byte* slots[Ranks];
    RowPosition positions[Ranks];
    Word128 words[Ranks];
    MSCCLPP_UNROLL
    for (int r = 0; r < Ranks; ++r) {
      slots[r] = slotsOf(r);
      positions[r] = at;
      positions[r].present = at.present && r != team.rank();
      words[r] = own;
    }
    receive<P, Ranks>(warp, wait, site, slots, positions, epoch, words);
    return reduceWords<T>(words, op);
  } else {
    const auto contribution = [&](int r) {
      if (r == team.rank()) return fromWord<T>(own);
      std::byte* slots[1] = {slotsOf(r)};
      const RowPosition positions[1] = {at};
      Word128 words[1] = {};
      site.peer = r;
      receive<P, 1>(warp, wait, site, slots, positions, epoch, words);
      return fromWord<T>(words[0]);
    };
    PackReducer<T, Op> reducer(contribution(0), op);
    for (int r = 1; r < team.size(); ++r) reducer.add(contribution(r));
    return toWord<T>(reducer.finish(team.size()));
  }
}

}  // namespace rows
}  // namespace mscclpp
