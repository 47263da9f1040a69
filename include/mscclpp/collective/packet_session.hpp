// A packet session: one call of a collective whose stages send packets, and what every such collective needs: rows of
// packs, slots for them in scratch, the epoch of the call, and the rule by which a slot may be written again.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/rows.hpp"
#include "mscclpp/collective/slot_reuse.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The ranks to which packets are sent: all, or all but rank 0, which then has no slots.
enum class Receivers { All, AllButFirst };

/// The scratch of a packet session, in a window: arrays of slots, one of each number for each other rank, in as many
/// sets as the rule of reuse needs. Calls alternate between the sets. The slots come last in the window: a rank without
/// slots needs no more than slotsOffset() bytes of it.
template <class P, int arrays, SlotReuse reuse, Receivers receivers = Receivers::All>
struct PacketSlots {
  static constexpr int initialByte = P::initialByte;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;
  static constexpr std::uint64_t sets = reuse == SlotReuse::ByData ? 2 : 4;

  std::size_t arrayPacks;  ///< packs of an array: the most that a rank sends to another through it in a call
  int ranks;

  MSCCLPP_HOST_DEVICE std::size_t arrayBytes() const { return P::bytes(arrayPacks); }
  MSCCLPP_HOST_DEVICE std::size_t sendersBytes() const { return arrayBytes() * static_cast<std::size_t>(ranks - 1); }
  MSCCLPP_HOST_DEVICE std::size_t setBytes() const { return sendersBytes() * static_cast<std::size_t>(arrays); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return slotsOffset() + setBytes() * sets; }

  static MSCCLPP_HOST_DEVICE constexpr bool hasSlots(int rank) { return receivers == Receivers::All || rank > 0; }
  MSCCLPP_HOST_DEVICE std::size_t slotsOffset() const { return roundUp(callOffset(ranks), 128); }
  /// Offset in the window, in bytes, of the slots that rank `from` writes at rank `to` in an array in a call.
  MSCCLPP_HOST_DEVICE std::size_t offset(std::uint64_t epoch, int array, int from, int to) const {
    return slotsOffset() + (epoch % sets) * setBytes() + static_cast<std::size_t>(array) * sendersBytes() +
           static_cast<std::size_t>(peerIndex(to, from)) * arrayBytes();
  }
  /// Offset of the word in which rank `from` counts its completed calls.
  MSCCLPP_HOST_DEVICE std::size_t creditOffset(int from) const {
    return static_cast<std::size_t>(from) * sizeof(std::uint64_t);
  }
  /// Offset of the CallWords of rank `from`.
  MSCCLPP_HOST_DEVICE std::size_t callOffset(int from) const {
    const std::size_t start = reuse == SlotReuse::ByData ? 0 : roundUp(creditOffset(ranks), 128);
    return start + static_cast<std::size_t>(from) * CallWords::bytes;
  }
};

/// One call of a collective over packets, as seen by one thread of a grid. All threads of the grid construct it with
/// the same arguments, on every rank, and call run() once, with the same stages and layouts.
///
/// Two calls on the same slots do not overlap in time, and a rank's call starts after all blocks of its previous call
/// have ended: by the order of kernels in a stream or, within a kernel, by a GridBarrier.
///
/// Rows are distributed over the warps of the grid. Consecutive rows go to different blocks: a small message spreads
/// over all multiprocessors, so that each has few stores to drain. A warp sends and receives only its own rows, so the
/// threads of a rank never wait for each other.
///
/// A wait that fails leaves its record in `wait`. Later operations of the thread then neither wait nor send, so that
/// the peers' waits fail too.
template <class P, int Ranks, int arrays, SlotReuse reuse, Receivers receivers, Grid GridType, WaitPolicy Wait,
          TracePolicy Trace>
class PacketSession {
 public:
  using Slots = PacketSlots<P, arrays, reuse, receivers>;
  using Index = rows::PackCount;  ///< of a layout's numbers of packs
  using Position = rows::RowPosition;

  MSCCLPP_INLINE PacketSession(const GridType& grid, const CollectiveArgs<Ranks, Slots>& args, Wait& wait, Trace& trace)
      : grid_(grid),
        warp_(grid.warp()),
        args_(args),
        wait_(wait),
        trace_(trace),
        epoch_(args.epochs.current(grid)),
        hasStopped_(args.epochs.hasStopped(epoch_)),
        firstRow_(static_cast<Index>(grid.warpIndex() * grid.blockCount() + grid.blockIndex())),
        stride_(static_cast<Index>(grid.warpCount() * grid.blockCount())) {}

  /// Runs the stages one after the other and ends the call. What a stage sends through an array is received by a later
  /// one or, in an exchange, by the same. Returns whether all waits of this thread have succeeded; if not, what its
  /// sinks got is meaningless.
  template <class... Stages>
  MSCCLPP_INLINE bool run(const Stages&... stages) {
    static_assert(((Stages::usesArraysBelow(arrays)) && ...), "a stage uses an array that the scratch does not have");
    static_assert(((!Stages::storesToPeers && !Stages::isOnlyWait) && ...),
                  "storeToPeers() needs a tile pipeline (Protocol::Simple): packets go through slots");
    static_assert(stage::arraysMatch<Stages...>(false),
                  "one stage sends through an array, and a later one (or the same, in an exchange) receives from it");
    if (hasStopped_) return false;
    begin();
    (runStage(stages), ...);
    clearUnused([&](int array, int from) {
      Index packs = 0;
      const auto add = [&](Index received) { packs = received > packs ? received : packs; };
      (add(stages.packsReceived(array, from, args_.team.rank())), ...);
      return packs;
    });
    return finish();
  }

  // For a kernel that runs its own code between them instead of stages. Its packets have no flags that repeat, for
  // which run() clears the slots that a call does not use.

  /// Whether the call does nothing, since an earlier one has failed.
  MSCCLPP_INLINE bool hasStopped() const { return hasStopped_; }
  /// Called by all threads before the first operation.
  MSCCLPP_INLINE void begin() const {
    if constexpr (reuse == SlotReuse::ByCredits) sendCredits();
  }
  /// Ends a call that has not stopped; called by all threads. Returns whether all waits of this thread have succeeded.
  MSCCLPP_INLINE bool finish() const {
    if (failed()) args_.epochs.stop(epoch_);
    args_.epochs.advance(grid_, P::nextEpoch(epoch_));
    return !failed();
  }

  // What the operations of a stage use; all lanes of a warp call them together.

  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  MSCCLPP_INLINE Trace& trace() const { return trace_; }
  /// The order in which this block addresses its peers (Team::peer): blocks differ, to spread their traffic.
  MSCCLPP_INLINE int rotation() const { return args_.team.rotation(static_cast<std::uint32_t>(grid_.blockIndex())); }

  /// A pack in the form in which it is sent and reduced, and the reverse.
  MSCCLPP_INLINE Word128 encode(const Word128& pack) const { return P::encode(warp_, pack); }
  MSCCLPP_INLINE Word128 decode(const Word128& word) const { return P::decode(warp_, word); }

  /// Sends an encoded pack to a peer. The peer receives it at the same position. At most once per call, array, peer and
  /// position.
  MSCCLPP_INLINE void send(int array, int peer, const Position& at, const Word128& word) {
    if (!mayWrite(peer)) return;
    rows::send<P>(warp_, args_.window.at(peer, args_.scratch.offset(epoch_, array, args_.team.rank(), peer)), at, word,
                  epoch_);
  }
  /// The same to all peers, in the order of a block with this rotation (Team::peer).
  MSCCLPP_INLINE void broadcast(int array, const Position& at, const Word128& word, int rotation) {
    MSCCLPP_UNROLL
    for (int i = 0; i < args_.team.size() - 1; ++i) send(array, args_.team.peer(i, rotation), at, word);
  }

  /// Waits for the packs that N peers send through an array, with the loads of all in flight together. Returns whether
  /// they arrived.
  template <int N>
  MSCCLPP_INLINE bool receive(int array, const int (&peers)[N], const Position (&at)[N], Word128 (&words)[N]) {
    std::byte* slots[N];
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) slots[i] = slotsOf(array, peers[i]);
    return rows::receive<P, N>(warp_, wait_, site(N == 1 ? peers[0] : -1), slots, at, epoch_, words);
  }
  /// Waits for the packs that all peers send through an array, and reduces them with `word`, this rank's, in rank order
  /// from 0. Encoded packs. Returns whether they arrived.
  template <class T, class Op>
  MSCCLPP_INLINE bool reduce(int array, const Position& at, Word128& word, const Op& op) {
    const auto inputsOf = [&](int from) { return slotsOf(array, from); };
    word = rows::reduce<P, T>(warp_, wait_, site(-1), args_.team, inputsOf, at, epoch_, word, op);
    return !failed();
  }

 private:
  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
  using Warp = decltype(someGrid().warp());

  /// Whether a wait of this thread has failed: data is meaningless from then on.
  MSCCLPP_INLINE bool failed() const { return hasFailed(wait_); }

  /// Calls f(row) for this warp's rows of an array of `packs` packs.
  template <class F>
  MSCCLPP_INLINE void forEachRow(Index packs, const F& f) const {
    for (Index row = firstRow_; row < rows::rowsOf<P, Warp>(packs); row += stride_) f(row);
  }

  /// With a fixed number of ranks, the accesses of a row for all peers are in flight together.
  static constexpr int batch = Ranks > 1 ? Ranks - 1 : 1;

  template <class S>
  MSCCLPP_INLINE void runStage(const S& stage) {
    const auto& team = args_.team;
    if (!stage.isOn(team.rank())) return;
    if constexpr (S::peers == stage::Peers::Each) {
      static_assert(!S::isExchange, "an exchange is a stage of the own slice");
      const int order = rotation();
      trace_.begin(S::traceId, firstRow_);
      forEachRow(stage.layout.longest(), [&](Index row) {
        MSCCLPP_UNROLL
        for (int first = 0; first < team.size() - 1; first += batch) {
          stage::Call<PacketSession, S, batch> call{*this, stage.layout, {}, {}, row};
          Position at[batch];
          Word128 words[batch] = {};
          MSCCLPP_UNROLL
          for (int i = 0; i < batch; ++i) {
            call.slices[i] = call.peers[i] = team.peer(first + i, order);
            at[i] = rows::position<P>(warp_, row, stage.layout.packs(call.slices[i]));
          }
          stage.chain.apply(call, at, words);
        }
      });
      trace_.end(S::traceId);
    } else {
      const Index packs = stage.layout.packs(team.rank());
      const int peer = S::peers == stage::Peers::One ? stage.rank : -1;
      if constexpr (!S::isExchange) trace_.begin(S::traceId, firstRow_);
      forEachRow(packs, [&](Index row) {
        const Position at[1] = {rows::position<P>(warp_, row, packs)};
        if (!at[0].present) return;
        stage::Call<PacketSession, S, 1> call{*this, stage.layout, {team.rank()}, {peer}, row};
        Word128 words[1] = {};
        if constexpr (S::isExchange) trace_.begin(TraceId::Push, row);
        stage.chain.apply(call, at, words);
        if constexpr (S::isExchange) trace_.end(S::traceId);
      });
      if constexpr (!S::isExchange) trace_.end(S::traceId);
    }
  }

  /// The slots of this rank that rank `from` writes.
  MSCCLPP_INLINE std::byte* slotsOf(int array, int from) const {
    return args_.window.at(args_.team.rank(), args_.scratch.offset(epoch_, array, from, args_.team.rank()));
  }
  MSCCLPP_INLINE WaitSite site(int peer) const {
    return {WaitOperation::Packet, args_.team.rank(), peer, static_cast<std::uint32_t>(grid_.blockIndex()), epoch_};
  }

  /// Tells every peer that this rank has completed the calls before this one. The stores are relaxed: what the calls
  /// read and wrote was performed when their blocks ended.
  MSCCLPP_INLINE void sendCredits() const {
    if (grid_.blockIndex() != 0 || grid_.warpIndex() != 0) return;
    for (int i = warp_.rank(); i < args_.team.size() - 1; i += warp_.size()) {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(creditOf(args_.team.peer(i), args_.team.rank()), epoch_);
    }
  }
  MSCCLPP_INLINE std::uint64_t* creditOf(int at, int from) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(at, args_.scratch.creditOffset(from)));
  }

  /// Waits, once per call and peer, until the peer has completed the last call that used the slots of this one. Returns
  /// false after a failed wait: the slots may still be read.
  MSCCLPP_INLINE bool mayWrite([[maybe_unused]] int peer) {
    if constexpr (reuse == SlotReuse::ByCredits) {
      const std::uint64_t bit = std::uint64_t{1} << peer;
      if ((credited_ & bit) == 0) {
        credited_ |= bit;
        if (epoch_ >= Slots::firstEpoch + Slots::sets) awaitCredit(peer, epoch_ - Slots::sets + 1);
      }
      return !failed();
    } else {
      return true;
    }
  }
  MSCCLPP_INLINE void awaitCredit(int peer, std::uint64_t needed) {
    const WaitSite site{WaitOperation::Progress, args_.team.rank(), peer,
                        static_cast<std::uint32_t>(grid_.blockIndex()), needed};
    const std::uint64_t* const word = creditOf(args_.team.rank(), peer);
    const auto attempt = [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Relaxed, arch::Scope::System>(word);
      const bool isCredited = static_cast<std::int64_t>(seen - needed) >= 0;  // initial bytes count as negative or 0
      return P::needsFullWarp ? warp_.all(isCredited) : isCredited;
    };
    if constexpr (P::needsFullWarp) {
      wait_.untilCollective(warp_, site, attempt);
    } else {
      wait_.until(site, attempt);
    }
  }

  /// Periodically clears the slots that this call did not use, since 32-bit flags repeat. No peer writes them at the
  /// time: the next writer is a later call, which waits for the end of this one.
  template <class ReceivedPacks>
  MSCCLPP_INLINE void clearUnused(const ReceivedPacks& receivedPacks) const {
    if (!Slots::hasSlots(args_.team.rank()) || !rows::mustClear<P>(epoch_, Slots::sets)) return;
    MSCCLPP_NO_UNROLL
    for (int array = 0; array < arrays; ++array) {
      MSCCLPP_NO_UNROLL
      for (int i = 0; i < args_.team.size() - 1; ++i) {
        const int from = args_.team.peer(i);
        rows::clear<P>(warp_, slotsOf(array, from), firstRow_, stride_, receivedPacks(array, from),
                       static_cast<Index>(args_.scratch.arrayPacks));
      }
    }
  }

  const GridType& grid_;
  const Warp warp_;
  const CollectiveArgs<Ranks, Slots>& args_;
  Wait& wait_;
  Trace& trace_;
  const std::uint64_t epoch_;
  const bool hasStopped_;  ///< an earlier call has failed
  const Index firstRow_;
  const Index stride_;
  std::uint64_t credited_ = 0;  ///< bit r: rank r's slots may be written in this call
};

template <Grid GridType, int Ranks, class P, int arrays, SlotReuse reuse, Receivers receivers, WaitPolicy Wait,
          TracePolicy Trace>
PacketSession(const GridType&, const CollectiveArgs<Ranks, PacketSlots<P, arrays, reuse, receivers>>&, Wait&, Trace&)
    -> PacketSession<P, Ranks, arrays, reuse, receivers, GridType, Wait, Trace>;

}  // namespace mscclpp
