// Ordered pairs of ranks: each is a team of two, the sender and the receiver, with slots, credits and epochs of its
// own.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/pair_messages.hpp"
#include "mscclpp/collective/session.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The scratch of all ordered pairs of a team, in a window: for each rank the part for what this rank sends to it (or
/// copies, if it is this rank), then for each other rank the part for what this rank receives from it. A part is the
/// epoch words of the pair, as many words for awaitBlocks(), and the scratch of the pair, of which the sender has no
/// slots. PairOf: the scratch of a team of two. The words of CollectiveArgs::epochs are not used.
template <class PairOf>
struct PairScratch {
  static constexpr int initialByte = PairOf::initialByte;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = PairOf::firstEpoch;
  /// The value of an epoch word before the first call.
  static constexpr std::uint64_t initialWord = (initialByte & 0xff) * std::uint64_t{0x0101010101010101};

  PairOf pair;  ///< of one pair
  int ranks;
  std::size_t start;  ///< offset in the window; 0, but where several scratches are in one window

  static constexpr std::size_t wordsBytes = epochWords * sizeof(std::uint64_t);
  // Offsets in a part.
  static constexpr std::size_t epochsInPart = 0;
  static constexpr std::size_t barrierInPart = wordsBytes;
  static constexpr std::size_t pairInPart = 2 * wordsBytes;

  MSCCLPP_HOST_DEVICE std::size_t senderBytes() const { return pairInPart + pair.slotsOffset(); }
  MSCCLPP_HOST_DEVICE std::size_t receiverBytes() const { return pairInPart + roundUp(pair.windowBytes(), 128); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const {
    const auto count = static_cast<std::size_t>(ranks);
    return count * senderBytes() + (count - 1) * receiverBytes();
  }

  /// Offset of the part of a pair in the window of its sender.
  MSCCLPP_HOST_DEVICE std::size_t senderOffset(int receiver) const {
    return start + static_cast<std::size_t>(receiver) * senderBytes();
  }
  /// The same in the window of its receiver, another rank.
  MSCCLPP_HOST_DEVICE std::size_t receiverOffset(int sender, int receiver) const {
    return start + static_cast<std::size_t>(ranks) * senderBytes() +
           static_cast<std::size_t>(peerIndex(receiver, sender)) * receiverBytes();
  }
};

/// Offset in the window of rank `self` of its part of the pair with `peer`, in which it is `side`.
template <PairSide side, class PairOf>
MSCCLPP_INLINE std::size_t partOffset(const PairScratch<PairOf>& scratch, int self, int peer) {
  return side == PairSide::Receiver ? scratch.receiverOffset(peer, self) : scratch.senderOffset(peer);
}

/// The arguments of a call of the pair of this rank and `peer`, in which this rank is `side`, for `count` elements.
/// args: team, window and wait of the call. Called by all threads of the grid; orders the epoch words, which the first
/// call of a pair sets.
template <PairSide side, class GridType, class CallArgs, class PairOf>
MSCCLPP_INLINE auto pairArgs(const GridType& grid, const CallArgs& args, const PairScratch<PairOf>& scratch, int peer,
                             std::size_t count) {
  constexpr int size = side == PairSide::Alone ? 1 : 2;
  constexpr int place = side == PairSide::Receiver ? 1 : 0;
  const int self = args.team.rank();
  CollectiveArgs<size, PairOf> result{
      .team = {place, size}, .window = {}, .epochs = {}, .scratch = scratch.pair, .count = count, .wait = args.wait};
  constexpr std::size_t inPart = PairScratch<PairOf>::pairInPart;
  const std::size_t here = partOffset<side>(scratch, self, peer);
  result.window.base[place] = args.window.at(self, here + inPart);
  if constexpr (size == 2) {
    constexpr PairSide other = side == PairSide::Receiver ? PairSide::Sender : PairSide::Receiver;
    result.window.base[1 - place] = args.window.at(peer, partOffset<other>(scratch, peer, self) + inPart);
  }
  result.epochs = {reinterpret_cast<std::uint64_t*>(args.window.at(self, here + PairScratch<PairOf>::epochsInPart))};
  // Every block sets its own word, and no other block accesses it.
  if constexpr (PairScratch<PairOf>::initialWord != PairOf::firstEpoch) {
    if (result.epochs.current(grid) == PairScratch<PairOf>::initialWord) {
      const auto block = grid.block();
      block.sync();  // all threads have read the word
      if (block.rank() == 0) result.epochs.words[grid.blockIndex()] = PairOf::firstEpoch;
      block.sync();
    }
  }
  return result;
}

/// Waits until every block of `grid` has ended the call of this epoch of a pair. words: a word per block, which only
/// this function accesses; it needs no reset, since epochs grow. Called by all threads of each block. Acquire and
/// release: what the threads did before is visible to all of them afterwards. Returns the same in all threads of a
/// block: false if the wait of one of them failed.
template <class GridType, WaitPolicy Wait>
MSCCLPP_INLINE bool awaitBlocks(const GridType& grid, std::uint64_t* words, std::uint64_t epoch, Wait wait) {
  using namespace arch;
  const auto block = grid.block();
  std::uint64_t* const own = words + grid.blockIndex();
  block.sync();
  if (block.rank() == 0) store<Order::Release, Scope::Device>(own, epoch);
  block.sync();
  for (int i = block.rank(); i < grid.blockCount(); i += block.size()) {
    const WaitSite site{WaitOperation::GridBarrier, -1, -1, static_cast<std::uint32_t>(grid.blockIndex()), epoch};
    const bool hasPassed = wait.until(site, [&](std::uint64_t& seen) {
      seen = load<Order::Acquire, Scope::Device>(words + i);
      return static_cast<std::int64_t>(seen - epoch) >= 0;  // initial bytes count as negative or 0
    });
    if (!hasPassed) store<Order::Relaxed, Scope::Device>(own, epoch | EpochWords::stopped);
  }
  block.sync();
  const bool passed = load<Order::Relaxed, Scope::Device>(own) == epoch;
  block.sync();
  return passed;
}

/// A wait policy of a pair, whose places 0 and 1 are other ranks in records.
template <class Wait>
class PairWait {
 public:
  MSCCLPP_INLINE PairWait(Wait& wait, const int (&ranks)[2]) : wait_(wait), ranks_{ranks[0], ranks[1]} {}

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, const Attempt& attempt) {
    return wait_.until(named(site), attempt);
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilCollective(const Warp& warp, const WaitSite& site, const Attempt& attempt) {
    return wait_.untilCollective(warp, named(site), attempt);
  }
  MSCCLPP_INLINE bool failed() const { return wait_.failed(); }

 private:
  MSCCLPP_INLINE WaitSite named(WaitSite site) const {
    site.rank = ranks_[site.rank == 0 ? 0 : 1];
    if (site.peer >= 0) site.peer = ranks_[site.peer == 0 ? 0 : 1];
    return site;
  }

  Wait& wait_;
  const int ranks_[2];
};

/// The collective of an ordered pair: `count` elements T from the source of rank 0 to the sink of rank 1. With
/// config.ranks == 1, from the source to the sink of the same rank. The sender does not wait for the receiver while
/// slots are free.
template <class T, CollectiveConfig config>
struct PairTransfer : OverSession<T, config.common(), 1, 2, SlotReuse::ByCredits, Receivers::AllButFirst> {
  static_assert(config.ranks == 1 || config.ranks == 2, "a pair has two ranks, or is one rank alone");
  using Base = OverSession<T, config.common(), 1, 2, SlotReuse::ByCredits, Receivers::AllButFirst>;
  using Base::checkSourceAndSink;
  using typename Base::Args;
  using typename Base::Scratch;

  /// The scratch of a pair for messages of up to `maxCount` elements, as of EqualCounts.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, const PipelineShape& shape) {
    return Base::makeScratch(ceilDivide(maxCount, packSize<T>), 2, shape);
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return Base::fits(args, ceilDivide(args.count, packSize<T>), shape);
  }

  /// ranks: the ranks of the job or team that are sender and receiver, for records of failed waits. Returns whether all
  /// waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const int (&ranks)[2], const Source& source,
                                 const Sink& sink) {
    using namespace stage;
    if (args.count == 0) return true;
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, TraceId::SendReceive, args.count * sizeof(T));
    auto namedWait = tracedWait(args.wait, trace);
    PairWait wait(namedWait, ranks);
    return Base::makeSession(grid, args, wait, trace, [&](auto& session) {
      const WholeMessage<T, typename Base::Index> message(args.count);
      if constexpr (config.ranks == 1) {
        return session.run(ownSlice(message) | from(source) | into(sink));
      } else {
        constexpr int inputs = 0;
        return session.run(withPeer(message, 1) | from(source) | send<inputs>(),
                           withPeer(message, 0) | receive<inputs>() | into(sink));
      }
    });
  }
};

/// The calling thread's block as block `index` of a grid of `count` blocks.
template <Grid GridType>
class RenumberedBlock : public GridType {
 public:
  MSCCLPP_INLINE RenumberedBlock(const GridType& grid, int index, int count)
      : GridType(grid), index_(index), count_(count) {}

  MSCCLPP_INLINE int blockIndex() const { return index_; }
  MSCCLPP_INLINE int blockCount() const { return count_; }

 private:
  int index_;
  int count_;
};

}  // namespace mscclpp
