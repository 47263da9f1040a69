// Ordered pairs of ranks: each is a team of two, the sender and the receiver, with slots, credits and epochs of its
// own.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/session.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The scratch of all ordered pairs of a team, in a window: for each peer the part in which this rank sends to it and
/// the part in which it receives from it. PairOf: the scratch of a team of two. The words of CollectiveArgs::epochs are
/// not used: those of the pairs are in the window.
template <class PairOf>
struct PairScratch {
  static constexpr int initialByte = PairOf::initialByte;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = PairOf::firstEpoch;
  /// The value of an epoch word before the first call.
  static constexpr std::uint64_t initialWord = (initialByte & 0xff) * std::uint64_t{0x0101010101010101};

  PairOf pair;  ///< of one pair
  int ranks;

  /// Bytes of a part: the scratch of a pair and its epoch words.
  MSCCLPP_HOST_DEVICE std::size_t partBytes() const { return epochsInPart() + epochWords * sizeof(std::uint64_t); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return 2 * static_cast<std::size_t>(ranks) * partBytes(); }

  /// Offset of the part of the pair in the window of its sender, and in that of its receiver.
  MSCCLPP_HOST_DEVICE std::size_t senderOffset(int receiver) const {
    return static_cast<std::size_t>(2 * receiver) * partBytes();
  }
  MSCCLPP_HOST_DEVICE std::size_t receiverOffset(int sender) const {
    return static_cast<std::size_t>(2 * sender + 1) * partBytes();
  }
  MSCCLPP_HOST_DEVICE std::size_t epochsInPart() const { return roundUp(pair.windowBytes(), 128); }
};

/// The place of a rank in an ordered pair. Alone: sender and receiver are the same rank.
enum class PairSide { Sender, Receiver, Alone };

/// The arguments of a call of the pair of this rank and `peer`, in which this rank is `side`, for `count` elements.
/// Called by all threads of the grid; orders the epoch words, which the first call of a pair sets.
template <PairSide side, class GridType, int Ranks, class PairOf>
MSCCLPP_INLINE auto pairArgs(const GridType& grid, const CollectiveArgs<Ranks, PairScratch<PairOf>>& args, int peer,
                             std::size_t count) {
  constexpr int size = side == PairSide::Alone ? 1 : 2;
  constexpr int place = side == PairSide::Receiver ? 1 : 0;
  const auto& scratch = args.scratch;
  const int self = args.team.rank();
  CollectiveArgs<size, PairOf> result{
      .team = {place, size}, .window = {}, .epochs = {}, .scratch = scratch.pair, .count = count, .wait = args.wait};
  const std::size_t here = side == PairSide::Receiver ? scratch.receiverOffset(peer) : scratch.senderOffset(peer);
  result.window.base[place] = args.window.at(self, here);
  if constexpr (size == 2) {
    const std::size_t there = side == PairSide::Receiver ? scratch.senderOffset(self) : scratch.receiverOffset(self);
    result.window.base[1 - place] = args.window.at(peer, there);
  }
  result.epochs = {reinterpret_cast<std::uint64_t*>(args.window.at(self, here + scratch.epochsInPart()))};
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
struct PairTransfer : OverSession<T, config.common(), 1, 2, SlotReuse::ByCredits> {
  static_assert(config.ranks == 1 || config.ranks == 2, "a pair has two ranks, or is one rank alone");
  using Base = OverSession<T, config.common(), 1, 2, SlotReuse::ByCredits>;
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

/// Some blocks of a grid, as a grid: [first, first + count), of which the calling thread's block is one.
template <Grid GridType>
class BlockRange : public GridType {
 public:
  MSCCLPP_INLINE BlockRange(const GridType& grid, int first, int count)
      : GridType(grid), first_(first), count_(count) {}

  MSCCLPP_INLINE int blockIndex() const { return GridType::blockIndex() - first_; }
  MSCCLPP_INLINE int blockCount() const { return count_; }

 private:
  int first_;
  int count_;
};

}  // namespace mscclpp
