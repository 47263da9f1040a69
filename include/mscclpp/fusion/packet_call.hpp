// A call of a fused collective over packets: each thread sends and receives the packs that it chooses, by slot.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/collective/rows.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// One call, as seen by one thread of a grid: the slots, epoch and rule of reuse of a packet session, for collectives
/// that distribute packs over the threads in their own way, such as a row to a block. Made by all threads of the grid
/// with the same arguments, on every rank; all call end(). A slot is the index of a pack in an array; a pack that one
/// thread sends may be received by any thread of the peer.
///
/// Slots are reused by the data: the result of every rank has to depend on data from every rank in every call
/// (SlotReuse::ByData). P: a PackProtocol whose lanes are independent: LL8, LL16, Sentinel.
///
/// A wait that fails leaves its record in `wait`; then the thread neither waits nor sends, so that the peers' waits
/// fail too.
template <class P, int Ranks, int arrays, Grid GridType, WaitPolicy Wait>
class PacketCall {
  static_assert(!P::needsFullWarp, "use Protocol::Sentinel, LL16 or LL8: LL128 sends lines of a whole warp");

 public:
  using Slots = PacketSlots<P, arrays, SlotReuse::ByData>;
  using Index = rows::PackCount;

  MSCCLPP_INLINE PacketCall(const GridType& grid, const CollectiveArgs<Ranks, Slots>& args, Wait& wait)
      : grid_(grid),
        args_(args),
        wait_(wait),
        epoch_(args.epochs.current(grid)),
        hasStopped_(args.epochs.hasStopped(epoch_)) {}

  /// Whether an earlier call has failed: this one does nothing then. The same in all threads of the rank.
  MSCCLPP_INLINE bool hasStopped() const { return hasStopped_; }
  /// Whether a wait of this thread has failed: data is meaningless from then on.
  MSCCLPP_INLINE bool failed() const { return hasFailed(wait_); }
  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  /// The order in which this block addresses its peers (Team::peer).
  MSCCLPP_INLINE int rotation() const { return args_.team.rotation(static_cast<std::uint32_t>(grid_.blockIndex())); }

  /// Sends 16 bytes to a slot of a peer; at most once per call, array, peer and slot.
  MSCCLPP_INLINE void send(int array, int peer, Index slot, const Word128& word) const {
    if (failed()) return;
    std::byte* const slots = args_.window.at(peer, args_.scratch.offset(epoch_, array, args_.team.rank(), peer));
    P::write(Lane{}, slots, slot, P::encode(Lane{}, word), epoch_);
  }
  /// The same to all peers.
  MSCCLPP_INLINE void broadcast(int array, Index slot, const Word128& word, int rotation) const {
    MSCCLPP_UNROLL
    for (int i = 0; i < args_.team.size() - 1; ++i) send(array, args_.team.peer(i, rotation), slot, word);
  }

  /// Waits for N packs that a peer sends through an array, with their loads in flight together; those with isPresent[i]
  /// only. Returns whether they arrived.
  template <int N>
  MSCCLPP_INLINE bool receive(int array, int peer, const Index (&slots)[N], const bool (&isPresent)[N],
                              Word128 (&words)[N]) {
    std::byte* from[N];
    rows::RowPosition at[N];
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) {
      from[i] = slotsOf(array, peer);
      at[i] = position(slots[i], isPresent[i]);
    }
    return rows::receive<P, N>(Lane{}, wait_, site(peer), from, at, epoch_, words);
  }

  /// Waits for N packs of every peer and adds them to `words`, this rank's, as elements T, in rank order from 0 and in
  /// T's accumulator, rounded once. Returns whether they arrived.
  /// allAtOnce: where the number of ranks is fixed, the loads of all of them are in flight together; otherwise those of
  /// four, which needs fewer registers.
  template <class T, bool allAtOnce, int N>
  MSCCLPP_INLINE bool sum(int array, const Index (&slots)[N], const bool (&isPresent)[N], Word128 (&words)[N]) {
    if constexpr (Ranks == 2) {
      // The sum of two does not depend on their order, so that no rank's place has to be left out.
      Word128 received[N] = {};
      const bool arrived = receive<N>(array, team().peer(0), slots, isPresent, received);
      MSCCLPP_UNROLL
      for (int n = 0; n < N; ++n) {
        const Word128 terms[2] = {words[n], received[n]};
        words[n] = reduceWords<T>(terms, Sum{});
      }
      return arrived;
    } else if constexpr (Ranks > 1 && allAtOnce) {
      std::byte* from[N * Ranks];
      rows::RowPosition at[N * Ranks];
      Word128 received[N * Ranks];
      MSCCLPP_UNROLL
      for (int i = 0; i < N * Ranks; ++i) {
        const int rank = i % Ranks;
        from[i] = slotsOf(array, rank);
        at[i] = position(slots[i / Ranks], isPresent[i / Ranks] && rank != args_.team.rank());
        received[i] = words[i / Ranks];
      }
      const bool arrived = rows::receive<P, N * Ranks>(Lane{}, wait_, site(-1), from, at, epoch_, received);
      MSCCLPP_UNROLL
      for (int n = 0; n < N; ++n) {
        Word128 terms[Ranks];
        MSCCLPP_UNROLL
        for (int r = 0; r < Ranks; ++r) terms[r] = received[n * Ranks + r];
        words[n] = reduceWords<T>(terms, Sum{});
      }
      return arrived;
    } else {
      MSCCLPP_UNROLL
      for (int n = 0; n < N; ++n) {
        if (isPresent[n]) words[n] = sumByParts<T>(array, slots[n], words[n]);
      }
      return !failed();
    }
  }

  /// Ends the call. Called by all threads of the grid. packsReceived(array, from): packs that this rank has received
  /// through an array from a rank, in the lowest slots. Returns whether all waits of this thread succeeded.
  template <class PacksReceived>
  MSCCLPP_INLINE bool end(const PacksReceived& packsReceived) {
    if (rows::mustClear<P>(epoch_, Slots::sets)) clearUnused(packsReceived);
    if (failed()) args_.epochs.stop(epoch_);
    args_.epochs.advance(grid_, P::nextEpoch(epoch_));
    return !failed();
  }

 private:
  /// A warp of one lane: each thread addresses its slots by itself.
  struct Lane : ThisThread {
    static constexpr int width = 1;
    static constexpr bool lockstepStores = false;
  };

  /// sum() of one pack, with the loads of a few ranks at a time in flight.
  template <class T>
  MSCCLPP_INLINE Word128 sumByParts(int array, Index slot, const Word128& own) {
    constexpr int part = 4;
    Accumulator<T> totals[packSize<T>] = {};  // host compilers do not see that there is a first rank
    MSCCLPP_NO_UNROLL
    for (int first = 0; first < team().size(); first += part) {
      std::byte* from[part];
      rows::RowPosition at[part];
      Word128 received[part];
      MSCCLPP_UNROLL
      for (int i = 0; i < part; ++i) {
        const int rank = first + i < team().size() ? first + i : team().rank();
        from[i] = slotsOf(array, rank);
        at[i] = position(slot, rank != team().rank());
        received[i] = own;
      }
      rows::receive<P, part>(Lane{}, wait_, site(-1), from, at, epoch_, received);
      MSCCLPP_UNROLL
      for (int i = 0; i < part; ++i) {
        const Pack<T> term = fromWord<T>(received[i]);
        MSCCLPP_UNROLL
        for (int k = 0; k < packSize<T>; ++k) {
          if (first + i == 0) {
            totals[k] = widen<T>(term[k]);
          } else if (first + i < team().size()) {
            totals[k] = Sum::combine(totals[k], widen<T>(term[k]));
          }
        }
      }
    }
    Pack<T> result;
    MSCCLPP_UNROLL
    for (int k = 0; k < packSize<T>; ++k) result[k] = narrow<T>(arch::canonicalNan(totals[k]));
    return toWord<T>(result);
  }
  static MSCCLPP_INLINE rows::RowPosition position(Index slot, bool isPresent) {
    return {slot, slot, isPresent, isPresent};
  }
  MSCCLPP_INLINE std::byte* slotsOf(int array, int from) const {
    return args_.window.at(args_.team.rank(), args_.scratch.offset(epoch_, array, from, args_.team.rank()));
  }
  MSCCLPP_INLINE WaitSite site(int peer) const {
    return {WaitOperation::Packet, args_.team.rank(), peer, static_cast<std::uint32_t>(grid_.blockIndex()), epoch_};
  }

  /// As PacketSession does: 32-bit flags repeat.
  template <class PacksReceived>
  MSCCLPP_INLINE void clearUnused(const PacksReceived& packsReceived) const {
    const auto block = grid_.block();
    const auto first = static_cast<Index>(grid_.blockIndex() * block.size() + block.rank());
    const auto stride = static_cast<Index>(grid_.blockCount() * block.size());
    MSCCLPP_NO_UNROLL
    for (int array = 0; array < arrays; ++array) {
      MSCCLPP_NO_UNROLL
      for (int i = 0; i < args_.team.size() - 1; ++i) {
        const int from = args_.team.peer(i);
        rows::clear<P>(Lane{}, slotsOf(array, from), first, stride, packsReceived(array, from),
                       static_cast<Index>(args_.scratch.arrayPacks));
      }
    }
  }

  const GridType& grid_;
  const CollectiveArgs<Ranks, Slots>& args_;
  Wait& wait_;
  const std::uint64_t epoch_;
  const bool hasStopped_;
};

}  // namespace mscclpp
