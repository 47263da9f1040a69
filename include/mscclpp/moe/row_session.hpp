// A row session: one call in which every rank sends rows to every rank, each row to a slot that both sides compute.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/piece_publisher.hpp"
#include "mscclpp/collective/rows.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/row_link.hpp"
#include "mscclpp/moe/row_slots.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "mscclpp/sync/grid_gate.hpp"

namespace mscclpp::moe {

/// Which part of a call a launch performs. A call is Both, or Send and then Receive, with other work in between.
enum class Phase : std::uint32_t { Both, Send, Receive };

/// One call, or one phase of it, as seen by one thread of a grid. Made by all threads of the grid, on every rank.
///
/// 1. In the phase Send all threads call enter() or, if there are counts, announce(), after enter() if entersEarly.
///    That announces the call to every rank.
/// 2. Any warp sends pieces of rows: send() of their packs, then publish(). Where rows have flags awaitEntries() comes
///    before.
/// 3. In the phase Receive all threads of a block call awaitEntries(), or threads of it awaitCount(), so that the block
///    knows of every rank that it is in the call. Then a warp may report() a number, which follows from the counts, and
///    any warp awaits those of other ranks.
/// 4. Any warp receives pieces of rows: await(), then receive().
/// 5. All threads call finish(), or suspend() at the end of a launch that is not the call's last.
///
/// Reuse: every rank waits for the entry, or for counts, of every rank in every call, and a rank enters a call after it
/// has completed the calls before. So in call k the slots that were last read in call k - 2 are free, and those of call
/// k - 1 once their rank has entered call k. The same goes for the memory that ports put from: docs/memory_model.md.
///
/// Two calls on the same slots do not overlap in time, and a launch starts after all blocks of the previous one have
/// ended. After a failed wait a thread neither waits nor sends, so that the peers' waits fail too.
template <int Ranks, class Slots, Grid GridType, WaitPolicy Wait>
class RowSession {
  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined

 public:
  using Warp = decltype(someGrid().warp());
  using Transport = typename Slots::Transport;
  static_assert(stepPacks % Warp::width == 0, "the width of a warp must divide the packs of a step");
  static constexpr int width = Warp::width;
  static constexpr int packsPerLane = stepPacks / width;

  MSCCLPP_INLINE RowSession(const GridType& grid, const RowArgs<Ranks, Transport>& args, Wait& wait)
      : grid_(grid), warp_(grid.warp()), args_(args), link_(args), wait_(wait), epoch_(args.epochs.current(grid)) {}

  /// Whether an earlier call has failed: this one does nothing then.
  MSCCLPP_INLINE bool hasStopped() const { return args_.epochs.hasStopped(epoch_); }
  /// Whether a wait of this call has failed, in this thread or, as far as it can be seen, in others of the rank: data
  /// is meaningless from then on. Called by all lanes of a warp; the same in all of them.
  MSCCLPP_INLINE bool failed() const { return warp_.any(hasFailed(wait_) || args_.epochs.hasStopped(epoch_ + 1)); }
  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  MSCCLPP_INLINE const Slots& slots() const { return args_.scratch; }
  MSCCLPP_INLINE const Warp& warp() const { return warp_; }
  /// The i-th rank in an order that begins after this one and ends with it: i in [0, team().size()).
  MSCCLPP_INLINE int rankInOrder(int i) const { return i == team().size() - 1 ? team().rank() : team().peer(i); }

  /// The share of this warp of the items to send or to receive: first(), first() + stride(), ..., unless the warps of a
  /// block take theirs from an ItemQueue. Where rows have flags, the launch does both and there are other ranks, warps
  /// differ in what they do: the last sendingBlocks() blocks send and the others receive or, if these are 0 and a block
  /// has warps for both, some warps of each block send while the others receive: half of them, or `most` if that is
  /// less.
  struct Share {
    int warp, warps;    ///< the number of this one among those of its block that share the items
    int block, blocks;  ///< the same of the block
    bool sends, receives;

    MSCCLPP_INLINE std::uint32_t first() const { return static_cast<std::uint32_t>(warp * blocks + block); }
    MSCCLPP_INLINE std::uint32_t stride() const { return static_cast<std::uint32_t>(warps * blocks); }
  };
  MSCCLPP_INLINE Share share(Phase phase, int most, int wantedBlocks) const {
    const int blocks = grid_.blockCount();
    const int block = grid_.blockIndex();
    const int warps = grid_.warpCount();
    const int warp = grid_.warpIndex();
    if (const int sending = sendingBlocks(phase, wantedBlocks); sending > 0) {
      const int others = blocks - sending;
      const bool sends = block >= others;  // the first block writes counts
      return {warp, warps, sends ? block - others : block, sends ? sending : others, sends, !sends};
    }
    const int sending = senders(phase, most);
    const int firstReceiver = phase == Phase::Both && sending < warps ? sending : 0;
    // A warp that does both has the same share of both.
    if (warp < sending) {
      return {warp, sending, block, blocks, true, phase == Phase::Both && sending == warps};
    }
    return {warp - firstReceiver, warps - firstReceiver, block, blocks, false, phase != Phase::Send};
  }
  /// The blocks of this launch that only send, if so many are wanted: all of them or, if a block cannot be spared for
  /// that, none.
  MSCCLPP_INLINE int sendingBlocks(Phase phase, int wanted) const {
    return mayDivide(phase) && wanted < grid_.blockCount() ? wanted : 0;
  }
  /// The warps of a block that send, where each block sends: the first ones.
  MSCCLPP_INLINE int senders(Phase phase, int most) const {
    if (phase == Phase::Receive) return 0;
    const int can = mayDivide(phase) ? (grid_.warpCount() + 1) / 2 : grid_.warpCount();
    return can < most ? can : most;
  }

  /// A barrier of the first `blocks` blocks of this launch. Called by all threads of these. Returns whether it
  /// succeeded, the same in all threads of the block; if not, the call fails.
  MSCCLPP_INLINE bool syncBlocks(GridBarrier& barrier, std::uint32_t blocks) {
    barrier.sync(grid_, blocks, wait_);
    return !blockFailed();
  }
  /// Waits until the first `openers` blocks of this launch have called it; once in a call. Called by all threads.
  /// Returns as syncBlocks().
  MSCCLPP_INLINE bool passGate(GridGate& gate, std::uint32_t openers) {
    gate.pass(grid_, openers, epoch_, wait_);
    return !blockFailed();
  }

  /// Whether, in a call with counts, enter() comes before they are known. Over packets the counts alone announce it,
  /// and through ports they go first.
  static constexpr bool entersEarly = Transport::hasRowFlags && !Transport::usesPorts;

  /// Sends slots().countWords counts to every rank, countOf(rank, i), after enter() if that comes early, and else
  /// announcing the call. Called by all threads.
  template <class CountOf>
  MSCCLPP_INLINE void announce(const CountOf& countOf) const {
    sendCounts(countOf);
    if constexpr (Transport::usesPorts) {
      grid_.block().sync();  // the block that has written the counts for a rank also enters there
      enter();
    }
  }
  /// Waits for a count of a rank in this call. One thread.
  MSCCLPP_INLINE std::uint32_t awaitCount(int from, std::uint32_t word) {
    return awaitNumber(ownWord(args_.scratch.countOffset(epoch_, from)) + word, from);
  }
  /// Whether a wait of the calling block has failed: then the call fails. Called by all threads of the block, the same
  /// in all of them.
  MSCCLPP_INLINE bool blockFailed() const {
    if (hasFailed(wait_)) args_.epochs.stop(epoch_);
    return grid_.block().syncAny(hasFailed(wait_));
  }

  /// Tells every rank that this one has entered the call. Called by all warps. Release: what this rank read in earlier
  /// calls may be overwritten. A port takes the counts first, so that the entry publishes them.
  MSCCLPP_INLINE void enter() const {
    if (failed()) return;
    MSCCLPP_NO_UNROLL
    for (int i = grid_.warpIndex() * grid_.blockCount() + grid_.blockIndex(); i < team().size();
         i += grid_.warpCount() * grid_.blockCount()) {
      if (warp_.rank() != 0) continue;
      const int to = rankInOrder(i);
      const auto entryOf = [&](int rank) { return args_.scratch.entryOffset(epoch_, rank); };
      link_.put(to, countsOf(), args_.scratch.countWords * sizeof(std::uint64_t), wait_);
      arch::store<arch::Order::Release, arch::Scope::System>(wordFor(to, entryOf), epoch_);
      link_.put(to, entryOf, sizeof(std::uint64_t), wait_);
    }
  }
  /// Waits until every rank has entered the call. Called by all threads of each block. Returns whether all have, the
  /// same in all threads of the block. If not, the call fails.
  MSCCLPP_INLINE bool awaitEntries() {
    const auto block = grid_.block();
    MSCCLPP_NO_UNROLL
    for (int from = block.rank(); from < team().size(); from += block.size()) {
      awaitWord(args_.scratch.entryOffset(epoch_, from), from, 0);
    }
    return !blockFailed();
  }

  /// Tells every rank, this one too, a number. Called by the warps of a block that knows all counts, with the same
  /// number if more than once in a call. Relaxed: it is valid by itself.
  MSCCLPP_INLINE void report(std::uint32_t number) const {
    MSCCLPP_NO_UNROLL
    for (int to = grid_.warpIndex() * width + warp_.rank(); to < team().size(); to += grid_.warpCount() * width) {
      const auto reportOf = [&](int rank) { return args_.scratch.reportOffset(epoch_, rank); };
      sendNumber(wordFor(to, reportOf), number);
      link_.put(to, reportOf, sizeof(std::uint64_t), wait_);
    }
  }
  /// Waits for what a rank reports in this call. A rank reports in the next call only when it has the counts of this
  /// one of that call, which has then read the word. One thread.
  MSCCLPP_INLINE std::uint32_t awaitReport(int from) {
    return awaitNumber(ownWord(args_.scratch.reportOffset(epoch_, from)), from);
  }

  /// Sends a pack to a slot of a rank; each slot at most once in a call. One thread.
  MSCCLPP_INLINE void send(int to, std::uint32_t slot, const Word128& word) const {
    Transport::write(link_.at(to, slotsOf()), slot, word, epoch_);
  }
  /// Where a pack is in a slot of a rank, for transports that copy rows.
  MSCCLPP_INLINE std::byte* slotAt(int to, std::uint32_t slot) const {
    return link_.at(to, slotsOf()) + Transport::bytes(slot);
  }
  /// Announces a piece of a row, of which this warp has sent all packs, to the slots of row `place`: a number of 16
  /// bits that the receiver gets with it. Called by all its lanes. A row that goes through a port has one piece.
  MSCCLPP_INLINE void publish([[maybe_unused]] int to, [[maybe_unused]] std::uint32_t row,
                              [[maybe_unused]] std::uint32_t piece, [[maybe_unused]] std::uint32_t place) const {
    if constexpr (Transport::hasRowFlags) {
      const auto flagOf = [&](int rank) { return args_.scratch.flagOffset(rank, row, piece); };
      if (!link_.hasPort(to)) {
        return Transport::publish(warp_, warp_.rank() == 0 ? wordFor(to, flagOf) : nullptr, flagWith(place));
      }
      if constexpr (Transport::usesPorts) {
        const std::size_t first = Transport::bytes(args_.scratch.dataSlot(place, 0));
        const auto rowOf = [&](int rank) { return args_.scratch.slotsOffset(epoch_, rank) + first; };
        if (warp_.rank() == 0) *wordFor(to, flagOf) = flagWith(place);
        link_.putRow(warp_, to, rowOf, args_.scratch.rowBytes(), flagOf, wait_);
      }
    }
  }
  /// The same of a piece for each lane, or of none (to: negative), by one release for all of them. Other warps may have
  /// sent its packs, as Transport::publish() says. To ranks without a port.
  MSCCLPP_INLINE void publishEach(int to, std::uint32_t row, std::uint32_t piece, std::uint32_t place) const {
    std::uint64_t* flag = nullptr;
    if (to >= 0) flag = wordFor(to, [&](int rank) { return args_.scratch.flagOffset(rank, row, piece); });
    Transport::publish(warp_, flag, flagWith(place));
  }

  /// Both for a PiecePublisher: pieces in the slots of the same number.
  MSCCLPP_INLINE void publish(const RowPiece& piece) const { publish(piece.to, piece.row, piece.piece, piece.row); }
  MSCCLPP_INLINE void publishEach(const RowPiece& piece) const {
    publishEach(piece.to, piece.row, piece.piece, piece.row);
  }

  /// Waits until a piece of a row from a rank has been published. Called by all lanes of a warp. Returns its place in
  /// the first lane.
  MSCCLPP_INLINE std::uint32_t await(int from, std::uint32_t row, std::uint32_t piece) {
    std::uint32_t place = 0;
    if (warp_.rank() == 0) place = awaitAlone(from, row, piece);
    warp_.sync();
    return place;
  }
  /// The same by one thread, for itself.
  MSCCLPP_INLINE std::uint32_t awaitAlone(int from, std::uint32_t row, std::uint32_t piece) {
    const std::uint64_t flag = awaitWord(args_.scratch.flagOffset(from, row, piece), from, placeBits);
    return static_cast<std::uint32_t>(flag & ((1u << placeBits) - 1));
  }
  /// Receives N packs, those with isPresent[i] only, from the slots of the ranks from[i]. One thread, which is the only
  /// one to receive them. streams: a hint that the cache need not keep them. Returns whether they arrived.
  template <int N>
  MSCCLPP_INLINE bool receive(const int (&from)[N], const std::uint32_t (&slot)[N], const bool (&isPresent)[N],
                              Word128 (&words)[N], bool streams = false) {
    std::byte* at[N];
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) {
      at[i] = args_.window.at(team().rank(), args_.scratch.slotsOffset(epoch_, from[i]));
    }
    const WaitSite site{WaitOperation::Packet, team().rank(), from[0], static_cast<std::uint32_t>(grid_.blockIndex()),
                        epoch_};
    return Transport::template read<N>(wait_, site, at, slot, isPresent, epoch_, words, streams);
  }

  /// Ends a launch after which the call goes on. Called by all threads.
  MSCCLPP_INLINE bool suspend() const {
    if (hasFailed(wait_)) args_.epochs.stop(epoch_);
    return !hasFailed(wait_);
  }
  /// Ends the call. Called by all threads. rowsFrom(rank): rows that this rank has received from a rank. Returns
  /// whether all waits of this thread succeeded.
  template <class RowsFrom>
  MSCCLPP_INLINE bool finish(const RowsFrom& rowsFrom) const {
    if constexpr (!Transport::hasRowFlags) {
      using P = typename Transport::Protocol;
      if (rows::mustClear<P>(epoch_, Transport::sets) && !failed()) clearUnused<P>(rowsFrom);
    }
    if (hasFailed(wait_)) args_.epochs.stop(epoch_);
    args_.epochs.advance(grid_, Transport::nextEpoch(epoch_));
    return !hasFailed(wait_);
  }

 private:
  static constexpr int placeBits = 16;  ///< of a flag

  /// The flag of a piece that is complete in this call.
  MSCCLPP_INLINE std::uint64_t flagWith(std::uint32_t place) const { return epoch_ << placeBits | place; }
  /// Whether warps may differ in what they do.
  MSCCLPP_INLINE bool mayDivide(Phase phase) const {
    return Transport::hasRowFlags && phase == Phase::Both && team().size() > 1;
  }
  MSCCLPP_INLINE std::uint64_t* ownWord(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(team().rank(), offset));
  }
  /// Where words for a rank are written.
  template <class OffsetOf>
  MSCCLPP_INLINE std::uint64_t* wordFor(int to, const OffsetOf& offsetOf) const {
    return reinterpret_cast<std::uint64_t*>(link_.at(to, offsetOf));
  }
  MSCCLPP_INLINE auto countsOf() const {
    return [this](int rank) { return args_.scratch.countOffset(epoch_, rank); };
  }
  MSCCLPP_INLINE auto slotsOf() const {
    return [this](int rank) { return args_.scratch.slotsOffset(epoch_, rank); };
  }
  /// Relaxed: each count is valid by itself.
  template <class CountOf>
  MSCCLPP_INLINE void sendCounts(const CountOf& countOf) const {
    const auto block = grid_.block();
    MSCCLPP_NO_UNROLL
    for (int i = grid_.blockIndex(); i < team().size(); i += grid_.blockCount()) {
      const int to = rankInOrder(i);
      std::uint64_t* const counts = wordFor(to, countsOf());
      MSCCLPP_NO_UNROLL
      for (auto word = static_cast<std::uint32_t>(block.rank()); word < args_.scratch.countWords;
           word += static_cast<std::uint32_t>(block.size())) {
        sendNumber(counts + word, countOf(to, word));
      }
    }
  }
  /// A number with the low half of the epoch, in one word. Every call writes the word, or the one of the other set.
  MSCCLPP_INLINE void sendNumber(std::uint64_t* word, std::uint32_t number) const {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(word, (epoch_ << 32) | number);
  }
  MSCCLPP_INLINE std::uint32_t awaitNumber(const std::uint64_t* word, int from) {
    const WaitSite site{WaitOperation::Progress, team().rank(), from, static_cast<std::uint32_t>(grid_.blockIndex()),
                        epoch_};
    std::uint64_t last = 0;
    wait_.until(site, [&](std::uint64_t& seen) {
      last = arch::load<arch::Order::Relaxed, arch::Scope::System>(word);
      seen = last >> 32;
      return static_cast<std::uint32_t>(seen) == static_cast<std::uint32_t>(epoch_);
    });
    return static_cast<std::uint32_t>(last);
  }
  /// Waits until a word of this rank's, without its last `otherBits` bits, has reached the epoch, with acquire. Returns
  /// the word. One thread.
  MSCCLPP_INLINE std::uint64_t awaitWord(std::size_t offset, int from, int otherBits) {
    const WaitSite site{WaitOperation::Progress, team().rank(), from, static_cast<std::uint32_t>(grid_.blockIndex()),
                        epoch_};
    const std::uint64_t* const address = ownWord(offset);
    std::uint64_t word = 0;
    wait_.until(site, [&](std::uint64_t& seen) {
      word = arch::load<arch::Order::Acquire, arch::Scope::System>(address);
      seen = word >> otherBits;
      return static_cast<std::int64_t>(word - (epoch_ << otherBits)) >= 0;  // initial bytes count as negative or 0
    });
    return word;
  }
  /// 32-bit flags repeat: see PacketRows.
  template <class P, class RowsFrom>
  MSCCLPP_INLINE void clearUnused(const RowsFrom& rowsFrom) const {
    const auto block = grid_.block();
    const auto first = static_cast<std::uint32_t>(grid_.blockIndex() * block.size() + block.rank());
    const auto stride = static_cast<std::uint32_t>(grid_.blockCount() * block.size());
    const std::uint32_t perRow = args_.scratch.packsOfRow();
    MSCCLPP_NO_UNROLL
    for (int from = 0; from < team().size(); ++from) {
      std::byte* const at = args_.window.at(team().rank(), args_.scratch.slotsOffset(epoch_, from));
      rows::clear<P>(cpu::SerialGroup{}, at, first, stride, rowsFrom(from) * perRow, args_.scratch.maxRows * perRow);
    }
  }

  const GridType& grid_;
  const Warp warp_;
  const RowArgs<Ranks, Transport>& args_;
  const RowLink<Ranks, Transport> link_;
  Wait& wait_;
  const std::uint64_t epoch_;
};

}  // namespace mscclpp::moe
