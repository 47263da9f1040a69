// Stages: the steps that packet collectives are composed of, each for one row of packs of one warp.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A message of `count` elements as packs.
template <class T>
struct PackedMessage {
  std::size_t count;

  MSCCLPP_INLINE std::size_t packs() const { return ceilDivide(count, packSize<T>); }
  /// Elements of pack `pack` that are part of the message: packSize<T> for all but the last.
  MSCCLPP_INLINE int valid(std::size_t pack) const {
    const std::size_t left = count - pack * packSize<T>;
    return left < packSize<T> ? static_cast<int>(left) : packSize<T>;
  }
  /// Bytes of the message in these packs.
  MSCCLPP_INLINE std::size_t bytes(Range packs) const {
    if (packs.size() == 0) return 0;
    const auto last = static_cast<std::size_t>(packSize<T> - valid(packs.end - 1));
    return (packs.size() * packSize<T> - last) * sizeof(T);
  }
  template <class Source>
  MSCCLPP_INLINE Pack<T> load(const Source& source, std::size_t pack) const {
    return source(pack * packSize<T>, valid(pack));
  }
  template <class Sink>
  MSCCLPP_INLINE void store(const Sink& sink, std::size_t pack, const Pack<T>& value) const {
    sink(pack * packSize<T>, value, valid(pack));
  }
};

namespace stage {

/// Where in a slot array a thread's pack of a row lies.
struct RowPosition {
  std::size_t row;
  std::size_t pack;
  bool active;   ///< the thread holds a pack of the message
  bool present;  ///< the thread takes part in sending and receiving the row
};

/// Rows that hold `packs` packs.
template <class P, class Warp>
MSCCLPP_INLINE std::size_t rowsOf(std::size_t packs) {
  return ceilDivide(packs, static_cast<std::size_t>(P::packsPerRow(Warp::width)));
}

/// The position of the calling thread in `row` of a slot array with `packs` packs.
template <class P, class Warp>
MSCCLPP_INLINE RowPosition position(const Warp& warp, std::size_t row, std::size_t packs) {
  constexpr std::size_t perRow = static_cast<std::size_t>(P::packsPerRow(Warp::width));
  const auto lane = static_cast<std::size_t>(warp.rank());
  const std::size_t pack = row * perRow + lane;
  const bool active = lane < perRow && pack < packs;
  return {row, pack, active, P::wholeRows ? row * perRow < packs : active};
}

/// send: one pack a thread into one slot array.
template <class P, class Warp>
MSCCLPP_INLINE void send(const Warp& warp, std::byte* slots, const RowPosition& at, const Word16& pack,
                         std::uint64_t epoch) {
  if (at.present) P::write(warp, slots, at.row, pack, epoch);
}

/// receive: packs from N slot arrays, all asked for at once; each slot is then made ready for its next use. False: the wait gave up.
template <class P, int N, class Warp, WaitPolicy Wait>
MSCCLPP_INLINE bool receive(const Warp& warp, Wait& wait, const WaitSite& site, std::byte* const (&slots)[N],
                            const RowPosition (&at)[N], std::uint64_t epoch, Word16 (&packs)[N]) {
  typename P::Fetched fetched[N] = {};
  unsigned tries = 0;
  const auto attempt = [&](std::uint64_t& seen) {
    bool complete = true;
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) {
      if (at[i].present) fetched[i] = P::fetch(warp, slots[i], at[i].row, epoch);
    }
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) {
      if (at[i].present) complete &= P::arrived(warp, slots[i], at[i].row, fetched[i], epoch, tries);
    }
    ++tries;
    seen = complete ? epoch : 0;
    return complete;
  };
  bool arrived = false;
  if constexpr (P::wholeRows) {
    arrived = wait.untilTogether(warp, site, attempt);
  } else {
    arrived = wait.until(site, attempt);
  }
  MSCCLPP_UNROLL
  for (int i = 0; i < N; ++i) {
    if (at[i].present) {
      packs[i] = P::unpack(warp, fetched[i]);
      P::consumed(warp, slots[i], at[i].row);
    }
  }
  return arrived;
}

/// reduce: own pack and those of all peers, in rank order from 0, so that every rank computes the same bits.
/// slotsOf(rank) is the slot array that `rank` writes for us.
template <class P, class T, class Op, int Ranks, class Warp, WaitPolicy Wait, class SlotsOf>
MSCCLPP_INLINE Pack<T> reduce(const Warp& warp, Wait& wait, WaitSite site, const Team<Ranks>& team,
                              const SlotsOf& slotsOf, const RowPosition& at, std::uint64_t epoch, const Pack<T>& own) {
  if constexpr (Ranks > 1) {
    // All peers' loads are in flight together; slot i belongs to the i-th rank that is not this one.
    std::byte* slots[Ranks - 1];
    RowPosition positions[Ranks - 1];
    Word16 packs[Ranks - 1] = {};
    MSCCLPP_UNROLL
    for (int i = 0; i < Ranks - 1; ++i) {
      slots[i] = slotsOf(i < team.rank() ? i : i + 1);
      positions[i] = at;
    }
    receive<P, Ranks - 1>(warp, wait, site, slots, positions, epoch, packs);
    PackReducer<T, Op> reducer(team.rank() == 0 ? own : fromWord<T>(packs[0]));
    MSCCLPP_UNROLL
    for (int r = 1; r < Ranks; ++r) {
      Word16 next = packs[r - 1];
      if (r < Ranks - 1 && r < team.rank()) next = packs[r < Ranks - 1 ? r : 0];
      if (r == team.rank()) next = toWord<T>(own);
      reducer.add(fromWord<T>(next));
    }
    return reducer.finish(Ranks);
  } else {
    const auto contribution = [&](int r) {
      if (r == team.rank()) return own;
      std::byte* slots[1] = {slotsOf(r)};
      const RowPosition positions[1] = {at};
      Word16 packs[1] = {};
      site.peer = r;
      receive<P, 1>(warp, wait, site, slots, positions, epoch, packs);
      return fromWord<T>(packs[0]);
    };
    PackReducer<T, Op> reducer(contribution(0));
    for (int r = 1; r < team.size(); ++r) reducer.add(contribution(r));
    return reducer.finish(team.size());
  }
}

}  // namespace stage
}  // namespace mscclpp
