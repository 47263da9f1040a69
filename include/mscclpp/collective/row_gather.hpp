// A row gather: every rank has a slice of the rows of a matrix and sends it to all others, in blocks of rows that the
// receivers wait for one by one, like the main loop of a matrix multiplication.
#pragma once

#include "mscclpp/arch/fence.hpp"
#include "mscclpp/arch/fenced_store.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/gather_blocks.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The window of a row gather of elements T: the rows of all peers with their scales, if there are any, and for each
/// part of a block of rows a 64-bit word with the last call in which it has arrived.
template <class T, int scales = 0>
struct GatherScratch : GatherBlocks<T, scales> {
  using Blocks = GatherBlocks<T, scales>;
  using Blocks::ranks;
  using Blocks::rowBytes;
  using Blocks::rows;
  using Blocks::scaleBytes;

  /// Offset in the window of rank `at`, in bytes, of the rows of rank `from`, another one.
  MSCCLPP_HOST_DEVICE std::size_t rowOffset(int at, int from, std::size_t row) const {
    return rowAmongPeers(at, from, row) * rowBytes();
  }
  /// Of the scales of a row, behind which are those of the rank's next row.
  MSCCLPP_HOST_DEVICE std::size_t scalesOffset(int at, int from, std::size_t row) const {
    return scalesStart() + scaleBytes(rowAmongPeers(at, from, row));
  }
  /// Of the word of a part of a block of rows.
  MSCCLPP_HOST_DEVICE std::size_t readyOffset(int at, int from, std::size_t block, int part) const {
    return readyStart() + this->readyIndex(peerIndex(at, from), block, part) * 8;
  }
  /// Of the 64-bit word with the last call that rank `from` has entered.
  MSCCLPP_HOST_DEVICE std::size_t entryOffset(int from) const {
    return roundUp(readyStart() + this->readyBytes(ranks - 1), 128) + static_cast<std::size_t>(from) * 8;
  }
  /// The words of rank `from` about its call (collective/call_check.hpp).
  MSCCLPP_HOST_DEVICE std::size_t callOffset(int from) const {
    return entryOffset(ranks) + static_cast<std::size_t>(from) * CallWords::bytes;
  }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return callOffset(ranks); }

 private:
  MSCCLPP_HOST_DEVICE std::size_t rowAmongPeers(int at, int from, std::size_t row) const {
    return static_cast<std::size_t>(peerIndex(at, from)) * rows + row;
  }
  MSCCLPP_HOST_DEVICE std::size_t peerRows() const { return static_cast<std::size_t>(ranks - 1) * rows; }
  MSCCLPP_HOST_DEVICE std::size_t scalesStart() const { return roundUp(peerRows() * rowBytes(), 128); }
  MSCCLPP_HOST_DEVICE std::size_t readyStart() const { return roundUp(scalesStart() + scaleBytes(peerRows()), 128); }
};

/// A rank's rows, as it sends them: row r is `bytes` bytes at data + r * pitch bytes.
struct SentRows {
  const void* data;
  std::size_t pitch;
  std::size_t bytes;              ///< at most scratch.rowBytes()
  const float* scales = nullptr;  ///< Scratch::scalesPerRow of each row, one row after the other; null if that is 0
};

/// In which order a rank sends its rows. Both are at least 1.
struct RowSendOrder {
  /// Of so many blocks of rows, those that readers read at the same time, the first columns are sent first.
  std::uint32_t blocksTogether = 1;
  /// So many columns of parts of a block are sent and announced together: the more, the fewer fences.
  std::uint32_t columnPartsTogether = 1;
};

/// One call of a row gather of args.count rows, of which rank r has [r * s, (r + 1) * s) with s = slice(): the last
/// slices may be shorter or empty.
///
/// 1. All warps of a grid call send().
/// 2. Any warps call await() for a block of rows of another rank, and then read rows().
/// 3. All threads of a grid call finish().
///
/// Warps that send and warps that receive may be different ones of the same blocks: each kind makes a session with its
/// grid; one kind calls leave() before a barrier of the block, the other finish() after it. A block of rows is
/// overwritten with the credit of its reader: a rank sends to a peer only once the peer has entered the call, and a
/// rank's call starts when all blocks of its previous one have ended. Two calls on one scratch do not overlap in time.
template <int Ranks, class Scratch, class GridType, class Wait, class Trace>
class RowGather {
 public:
  using T = typename Scratch::Element;

  MSCCLPP_INLINE RowGather(const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, Wait& wait, Trace& trace)
      : RowGather(grid, args, args.epochs.current(grid), wait, trace) {}
  /// For a grid that numbers its blocks otherwise than the launch, whose sessions call leave(), not finish(): epoch is
  /// that of the call, as the kernel has read it.
  MSCCLPP_INLINE RowGather(const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, std::uint64_t epoch,
                           Wait& wait, Trace& trace)
      : grid_(grid),
        warp_(grid.warp()),
        args_(args),
        wait_(wait),
        trace_(trace),
        epoch_(epoch),
        hasStopped_(args.epochs.hasStopped(epoch_)) {
    if (hasStopped_ || grid.blockIndex() != 0 || grid.warpIndex() != 0) return;
    // Release: what this rank read in the calls before may be overwritten from now on.
    for (int i = warp_.rank(); i < team().size() - 1; i += warp_.size()) {
      arch::store<arch::Order::Release, arch::Scope::System>(word(team().peer(i), scratch().entryOffset(team().rank())),
                                                             epoch_);
    }
  }

  /// Whether the call does nothing, since an earlier one has failed.
  MSCCLPP_INLINE bool hasStopped() const { return hasStopped_; }
  MSCCLPP_INLINE std::size_t slice() const { return ceilDivide(args_.count, static_cast<std::size_t>(team().size())); }
  MSCCLPP_INLINE Range rowsOf(int rank) const {
    return steppedPart(args_.count, slice(), static_cast<std::size_t>(rank));
  }
  /// Blocks of rows of a rank.
  MSCCLPP_INLINE std::size_t blocksOf(int rank) const { return ceilDivide(rowsOf(rank).size(), perBlock()); }

  /// A block of rows of a rank.
  struct Place {
    int rank;
    std::size_t block;
  };
  /// Block i in the order in which the blocks of all ranks arrive: first this rank's own, then those of the rank before
  /// it, which sends to this one first.
  MSCCLPP_INLINE Place blockInOrder(std::size_t i) const {
    int rank = team().rank();
    for (int step = 1; step < team().size(); ++step) {
      const std::size_t count = blocksOf(rank);
      if (i < count) break;
      i -= count;
      rank = rank == 0 ? team().size() - 1 : rank - 1;
    }
    return {rank, i};
  }

  // ---- 1. ----

  /// Sends this rank's rows to all peers, and announces each part with release. A part is sent by one warp; consecutive
  /// ones go to different blocks. The scales of a row are sent with its first columns. Returns whether all waits of
  /// this warp succeeded.
  MSCCLPP_INLINE bool send(const SentRows& rows, const RowSendOrder& order = {}) {
    return sendBy(OwnStores{*this, rows.pitch}, rows, order);
  }
  /// The same by other means than stores of the calling warp. By all of its lanes it calls
  /// - steps.enter() when it has acquired that a peer's rows may be overwritten;
  /// - steps.copyRows(to, from, rows, size) for `size` bytes of each of some rows, which lie scratch.rowBytes() apart
  ///   in the window of a peer, and rows.pitch in the data. All lanes store the scales of rows themselves, before it;
  /// - steps.partsSent(peer, block, rowPart, begin, end) once what has been copied since is complete: columns of parts
  ///   from `begin` to `end`, for each of which it has RowGather::announce() called behind a system-wide fence.
  template <class Steps>
  MSCCLPP_INLINE bool sendBy(const Steps& steps, const SentRows& rows, const RowSendOrder& order) {
    if (hasStopped_) return false;
    const auto blocks = static_cast<std::uint32_t>(blocksOf(team().rank()));
    const auto rowParts = static_cast<std::uint32_t>(scratch().rowParts());
    const std::size_t columnSteps =
        ceilDivide(static_cast<std::size_t>(scratch().columnParts()), std::size_t{order.columnPartsTogether});
    const std::uint32_t perBlock = rowParts * static_cast<std::uint32_t>(columnSteps);
    const std::uint32_t perPeer = blocks * perBlock, all = perPeer * static_cast<std::uint32_t>(team().size() - 1);
    const auto stride = static_cast<std::uint32_t>(grid_.warpCount() * grid_.blockCount());
    int entered = -1;
    for (auto i = static_cast<std::uint32_t>(grid_.warpIndex() * grid_.blockCount() + grid_.blockIndex()); i < all;
         i += stride) {
      const int peer = team().peer(static_cast<int>(i / perPeer));
      if (peer != entered) {
        if (!awaitEntry(peer)) return false;
        steps.enter();
        entered = peer;
      }
      const std::uint32_t inPeer = i % perPeer;
      const std::uint32_t first = inPeer / (order.blocksTogether * perBlock) * order.blocksTogether;
      const std::uint32_t together = first + order.blocksTogether < blocks ? order.blocksTogether : blocks - first;
      const std::uint32_t inGroup = inPeer - first * perBlock;
      const std::uint32_t columnPart = inGroup / (together * rowParts) * order.columnPartsTogether;
      const std::uint32_t inColumn = inGroup % (together * rowParts);
      sendParts(steps, rows, peer, first + inColumn / rowParts, inColumn % rowParts, columnPart,
                order.columnPartsTogether);
    }
    return true;
  }
  /// Tells a peer that a part of a block of rows has arrived: relaxed, behind a system-wide fence that follows its
  /// arrival. One thread.
  MSCCLPP_INLINE void announce(int peer, std::size_t block, int part) const {
    arch::storeBehindFence<arch::Scope::System>(word(peer, scratch().readyOffset(peer, team().rank(), block, part)),
                                                epoch_);
  }

  // ---- 2. ----

  /// Waits until a block of rows has arrived, with acquire; a block of this rank's own has. Called by all lanes of a
  /// warp, as often as wanted. Returns whether the wait succeeded.
  MSCCLPP_INLINE bool await(const Place& place) {
    if (place.rank == team().rank()) return true;
    const TraceSpan span(trace_, TraceId::Collect, place.block);
    for (int part = warp_.rank(); part < scratch().partsPerBlock(); part += warp_.size()) {
      awaitWord(scratch().readyOffset(team().rank(), place.rank, place.block, part), place.rank,
                [&](std::uint64_t seen) { return seen == epoch_; });
    }
    warp_.sync();
    return !warp_.any(hasFailed(wait_));
  }
  /// The rows of another rank, each after the other at a distance of scratch.columns elements.
  MSCCLPP_INLINE const T* rows(int rank) const {
    return reinterpret_cast<const T*>(args_.window.at(team().rank(), scratch().rowOffset(team().rank(), rank, 0)));
  }
  /// Scratch::scalesPerRow for each of these rows, one row after the other.
  MSCCLPP_INLINE const float* scales(int rank) const {
    return reinterpret_cast<const float*>(
        args_.window.at(team().rank(), scratch().scalesOffset(team().rank(), rank, 0)));
  }

  // ---- 3. ----

  /// Ends the call. Called by all threads of one session's grid, after a barrier of the block that follows what all
  /// sessions did. Returns whether all waits of this thread succeeded.
  MSCCLPP_INLINE bool finish() {
    const bool succeeded = leave();
    if (!hasStopped_) args_.epochs.advance(grid_, epoch_ + 1);
    return succeeded;
  }
  /// The same for the other sessions, whose threads call it before that barrier.
  MSCCLPP_INLINE bool leave() {
    if (hasStopped_) return false;
    if (hasFailed(wait_)) args_.epochs.stop(epoch_);
    return !hasFailed(wait_);
  }

 private:
  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
  using Warp = decltype(someGrid().warp());

  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  MSCCLPP_INLINE const Scratch& scratch() const { return args_.scratch; }
  MSCCLPP_INLINE std::size_t perBlock() const { return static_cast<std::size_t>(scratch().rowsPerBlock); }
  /// The steps of send().
  struct OwnStores {
    const RowGather& gather;
    std::size_t pitch;

    MSCCLPP_INLINE void enter() const {}
    MSCCLPP_INLINE void copyRows(std::byte* to, const std::byte* from, std::size_t rows, std::size_t size) const {
      for (std::size_t row = 0; row < rows; ++row) {
        copy(gather.warp_, to + row * gather.scratch().rowBytes(), from + row * pitch, size);
      }
    }
    MSCCLPP_INLINE void partsSent(int peer, std::size_t block, std::uint32_t rowPart, std::uint32_t begin,
                                  std::uint32_t end) const {
      gather.warp_.sync();
      if (gather.warp_.rank() != 0) return;
      arch::fence<arch::Scope::System>();  // one for all words
      for (; begin < end; ++begin) {
        const int part = gather.scratch().partAt(static_cast<int>(begin), static_cast<int>(rowPart));
        gather.announce(peer, block, part);
      }
    }
  };

  /// Sends and announces a row of parts, in up to `columnParts` columns of parts.
  template <class Steps>
  MSCCLPP_INLINE void sendParts(const Steps& steps, const SentRows& rows, int peer, std::size_t block,
                                std::uint32_t rowPart, std::uint32_t columnPart, std::uint32_t columnParts) {
    const TraceSpan span(trace_, TraceId::Push, block);
    const Range inBlock = steppedPart(rowsOf(team().rank()).size(), perBlock(), block);
    const Range inPart = steppedPart(inBlock.size(), static_cast<std::size_t>(scratch().rowsPerPart), rowPart);
    const std::size_t partBytes = scratch().columnsPerPart * sizeof(T), begin = columnPart * partBytes;
    const std::size_t end = begin + columnParts * partBytes < rows.bytes ? begin + columnParts * partBytes : rows.bytes;
    const std::size_t row = inBlock.begin + inPart.begin;
    if constexpr (Scratch::scalesPerRow > 0) {
      if (begin == 0) sendScales(rows.scales, peer, {row, row + inPart.size()});
    }
    if (inPart.size() > 0 && begin < end) {
      steps.copyRows(args_.window.at(peer, scratch().rowOffset(peer, team().rank(), row)) + begin,
                     static_cast<const std::byte*>(rows.data) + row * rows.pitch + begin, inPart.size(), end - begin);
    }
    const auto all = static_cast<std::uint32_t>(scratch().columnParts());
    steps.partsSent(peer, block, rowPart, columnPart, columnPart + columnParts < all ? columnPart + columnParts : all);
  }
  MSCCLPP_INLINE void sendScales(const float* scales, int peer, Range rows) const {
    constexpr auto perRow = static_cast<std::size_t>(Scratch::scalesPerRow);
    auto* const to =
        reinterpret_cast<float*>(args_.window.at(peer, scratch().scalesOffset(peer, team().rank(), rows.begin)));
    const auto lane = static_cast<std::size_t>(warp_.rank()), lanes = static_cast<std::size_t>(warp_.size());
    MSCCLPP_NO_UNROLL
    for (std::size_t i = lane; i < rows.size() * perRow; i += lanes) to[i] = scales[rows.begin * perRow + i];
  }
  MSCCLPP_INLINE std::uint64_t* word(int rank, std::size_t offset) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(rank, offset));
  }
  /// One thread.
  template <class IsReached>
  MSCCLPP_INLINE void awaitWord(std::size_t offset, int peer, const IsReached& isReached) {
    const std::uint64_t* const address = word(team().rank(), offset);
    const WaitSite site{WaitOperation::Progress, team().rank(), peer, static_cast<std::uint32_t>(grid_.blockIndex()),
                        epoch_};
    wait_.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(address);
      return isReached(seen);
    });
  }
  MSCCLPP_INLINE bool awaitEntry(int peer) {
    if (warp_.rank() == 0) {
      awaitWord(scratch().entryOffset(peer), peer,
                [&](std::uint64_t seen) { return static_cast<std::int64_t>(seen - epoch_) >= 0; });
    }
    warp_.sync();
    return !warp_.any(hasFailed(wait_));
  }

  const GridType& grid_;
  const Warp warp_;
  const CollectiveArgs<Ranks, Scratch>& args_;
  Wait& wait_;
  Trace& trace_;
  const std::uint64_t epoch_;
  const bool hasStopped_;  ///< an earlier call has failed
};

/// A RowGather for one call.
template <Grid GridType, int Ranks, class Scratch, WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE RowGather<Ranks, Scratch, GridType, Wait, Trace> makeRowGather(
    const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, Wait& wait, Trace& trace) {
  return {grid, args, wait, trace};
}

}  // namespace mscclpp
