// A packet session: what every collective over packets needs for one call. Rows of packs, slots for them in scratch,
// sending, receiving and reducing them, the epoch of the call, and the rule by which a slot may be written again.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// How a rank knows that its peer has read a slot, before it writes the slot again.
enum class SlotReuse {
  /// By the data itself: the result of every rank depends on data from every rank, as in an all-reduce or an
  /// all-gather. So a rank that enters call k knows that every peer has completed call k - 2, and two sets of slots
  /// suffice. docs/memory_model.md has the proof.
  ByData,
  /// By credits: a rank that enters a call tells every peer that it has completed the calls before. There are four sets
  /// of slots, so that a rank that receives nothing, like the root of a broadcast, may be three calls ahead. For all
  /// other collectives.
  ByCredits
};

/// The scratch of a packet session, in a window: for each phase and sender an array of slots, in as many sets as the
/// rule of reuse needs. Calls alternate between the sets.
template <class P, int phases, SlotReuse reuse>
struct PacketSlots {
  static constexpr int initialByte = P::initialByte;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;
  static constexpr std::uint64_t sets = reuse == SlotReuse::ByData ? 2 : 4;

  std::size_t arrayPacks;  ///< packs of the longest array: what a rank sends to another in one phase of a call
  int ranks;

  MSCCLPP_HOST_DEVICE std::size_t arrayBytes() const { return P::bytes(arrayPacks); }
  MSCCLPP_HOST_DEVICE std::size_t phaseBytes() const { return arrayBytes() * static_cast<std::size_t>(ranks); }
  MSCCLPP_HOST_DEVICE std::size_t setBytes() const { return phaseBytes() * static_cast<std::size_t>(phases); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const {
    return reuse == SlotReuse::ByData ? setBytes() * sets : creditOffset(ranks);
  }

  /// Offset in the window, in bytes, of the slots that rank `from` writes in `phase` of a call.
  MSCCLPP_HOST_DEVICE std::size_t offset(std::uint64_t epoch, int phase, int from) const {
    return (epoch % sets) * setBytes() + static_cast<std::size_t>(phase) * phaseBytes() +
           static_cast<std::size_t>(from) * arrayBytes();
  }
  /// Offset of the word in which rank `from` counts its completed calls.
  MSCCLPP_HOST_DEVICE std::size_t creditOffset(int from) const {
    return roundUp(setBytes() * sets, 128) + static_cast<std::size_t>(from) * sizeof(std::uint64_t);
  }
};

/// One call of a collective over packets, as seen by one thread of a grid. All threads of the grid construct it with
/// the same arguments, on every rank; call the same operations in the same order, with the same numbers of packs; and
/// end with finish(). All lanes of a warp call an operation together.
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
template <class P, int Ranks, int phases, SlotReuse reuse, Grid GridType, WaitPolicy Wait, TracePolicy Trace>
class PacketSession {
 public:
  using Slots = PacketSlots<P, phases, reuse>;
  using PackCount = stage::PackCount;
  using Position = stage::RowPosition;

  MSCCLPP_INLINE PacketSession(const GridType& grid, const Team<Ranks>& team, const Window<Ranks>& window,
                               const EpochWords& epochs, const Slots& slots, Wait& wait, Trace& trace)
      : grid_(grid),
        warp_(grid.warp()),
        team_(team),
        window_(window),
        epochs_(epochs),
        slots_(slots),
        wait_(wait),
        trace_(trace),
        epoch_(epochs.current(grid)),
        firstRow_(static_cast<PackCount>(grid.warpIndex() * grid.blockCount() + grid.blockIndex())),
        stride_(static_cast<PackCount>(grid.warpCount() * grid.blockCount())) {
    if constexpr (reuse == SlotReuse::ByCredits) sendCredits();
  }

  MSCCLPP_INLINE const Team<Ranks>& team() const { return team_; }
  MSCCLPP_INLINE std::uint64_t epoch() const { return epoch_; }
  MSCCLPP_INLINE Trace& trace() const { return trace_; }
  /// Whether a wait of this thread has failed: data is meaningless from then on.
  MSCCLPP_INLINE bool failed() const {
    if constexpr (requires { wait_.failed(); }) {
      return wait_.failed();
    } else {
      return false;
    }
  }
  /// The order in which this block addresses its peers (Team::peer): blocks differ, to spread their traffic.
  MSCCLPP_INLINE int rotation() const { return team_.rotation(static_cast<std::uint32_t>(grid_.blockIndex())); }
  /// The first of this warp's rows.
  MSCCLPP_INLINE PackCount firstRow() const { return firstRow_; }

  /// Calls f(row) for this warp's rows of an array of `packs` packs.
  template <class F>
  MSCCLPP_INLINE void forEachRow(PackCount packs, const F& f) const {
    for (PackCount row = firstRow_; row < stage::rowsOf<P, Warp>(packs); row += stride_) f(row);
  }
  /// The position of this thread's pack of `row` in an array of `packs` packs.
  MSCCLPP_INLINE Position position(PackCount row, PackCount packs) const {
    return stage::position<P>(warp_, row, packs);
  }

  /// A pack in the form in which it is sent and reduced, and the reverse.
  MSCCLPP_INLINE Word128 encode(const Word128& pack) const { return P::encode(warp_, pack); }
  MSCCLPP_INLINE Word128 decode(const Word128& word) const { return P::decode(warp_, word); }

  /// Sends an encoded pack to a peer. The peer receives it at the same position. At most once per call, phase, peer and
  /// position.
  MSCCLPP_INLINE void send(int phase, int peer, const Position& at, const Word128& word) {
    if (!mayWrite(peer)) return;
    stage::send<P>(warp_, window_.at(peer, slots_.offset(epoch_, phase, team_.rank())), at, word, epoch_);
  }
  /// The same to all peers, in the order of a block with this rotation (Team::peer).
  MSCCLPP_INLINE void broadcast(int phase, const Position& at, const Word128& word, int rotation = 0) {
    MSCCLPP_UNROLL
    for (int i = 0; i < team_.size() - 1; ++i) send(phase, team_.peer(i, rotation), at, word);
  }

  /// Waits for the packs that N peers send in `phase`, with the loads of all in flight together.
  template <int N>
  MSCCLPP_INLINE void receive(int phase, const int (&peers)[N], const Position (&at)[N], Word128 (&words)[N]) {
    std::byte* slots[N];
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) slots[i] = slotsOf(phase, peers[i]);
    stage::receive<P, N>(warp_, wait_, site(N == 1 ? peers[0] : -1), slots, at, epoch_, words);
  }
  /// Waits for one pack of one peer.
  MSCCLPP_INLINE Word128 receive(int phase, int peer, const Position& at) {
    const int peers[1] = {peer};
    const Position positions[1] = {at};
    Word128 words[1] = {};
    receive<1>(phase, peers, positions, words);
    return words[0];
  }
  /// Waits for the packs that all peers send in `phase`, and reduces them with `own`, in rank order from 0, so that
  /// every rank computes the same bits. Encoded packs.
  template <class T, class Op>
  MSCCLPP_INLINE Word128 reduce(int phase, const Position& at, const Word128& own) {
    const auto inputsOf = [&](int from) { return slotsOf(phase, from); };
    return stage::reduce<P, T, Op>(warp_, wait_, site(-1), team_, inputsOf, at, epoch_, own);
  }

  /// Ends the call. receivedPacks(phase, from): the packs that rank `from` has sent to this rank in this call; 0 for
  /// this rank itself.
  template <class ReceivedPacks>
  MSCCLPP_INLINE void finish(const ReceivedPacks& receivedPacks) {
    clearUnused(receivedPacks);
    epochs_.advance(grid_, P::nextEpoch(epoch_));
  }

 private:
  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
  using Warp = decltype(someGrid().warp());

  /// The slots of this rank that rank `from` writes.
  MSCCLPP_INLINE std::byte* slotsOf(int phase, int from) const {
    return window_.at(team_.rank(), slots_.offset(epoch_, phase, from));
  }
  MSCCLPP_INLINE WaitSite site(int peer) const {
    return {WaitOperation::Packet, team_.rank(), peer, static_cast<std::uint32_t>(grid_.blockIndex()), epoch_};
  }

  /// Tells every peer that this rank has completed the calls before this one. The stores are relaxed: what the calls
  /// read and wrote was performed when their blocks ended.
  MSCCLPP_INLINE void sendCredits() const {
    if (grid_.blockIndex() != 0 || grid_.warpIndex() != 0) return;
    for (int i = warp_.rank(); i < team_.size() - 1; i += warp_.size()) {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(creditOf(team_.peer(i), team_.rank()), epoch_);
    }
  }
  MSCCLPP_INLINE std::uint64_t* creditOf(int at, int from) const {
    return reinterpret_cast<std::uint64_t*>(window_.at(at, slots_.creditOffset(from)));
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
    const WaitSite site{WaitOperation::Progress, team_.rank(), peer, static_cast<std::uint32_t>(grid_.blockIndex()),
                        needed};
    const std::uint64_t* const word = creditOf(team_.rank(), peer);
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
    if (!stage::mustClear<P>(epoch_, Slots::sets)) return;
    MSCCLPP_NO_UNROLL
    for (int phase = 0; phase < phases; ++phase) {
      MSCCLPP_NO_UNROLL
      for (int from = 0; from < team_.size(); ++from)
        stage::clear<P>(warp_, slotsOf(phase, from), firstRow_, stride_, receivedPacks(phase, from),
                        static_cast<PackCount>(slots_.arrayPacks));
    }
  }

  const GridType& grid_;
  const Warp warp_;
  const Team<Ranks>& team_;
  const Window<Ranks>& window_;
  const EpochWords& epochs_;
  const Slots slots_;
  Wait& wait_;
  Trace& trace_;
  const std::uint64_t epoch_;
  const PackCount firstRow_;
  const PackCount stride_;
  std::uint64_t credited_ = 0;  ///< bit r: rank r's slots may be written in this call
};

template <Grid GridType, int Ranks, class P, int phases, SlotReuse reuse, WaitPolicy Wait, TracePolicy Trace>
PacketSession(const GridType&, const Team<Ranks>&, const Window<Ranks>&, const EpochWords&,
              const PacketSlots<P, phases, reuse>&, Wait&, Trace&)
    -> PacketSession<P, Ranks, phases, reuse, GridType, Wait, Trace>;

}  // namespace mscclpp
