// Send and receive: messages between two ranks, in which no other rank takes part.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/pair_session.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The arguments of a SendReceive. count: the elements that are sent.
template <int Ranks, class Scratch>
struct SendReceiveArgs : CollectiveArgs<Ranks, Scratch> {
  int destination;            ///< the rank to send to, or -1
  int origin;                 ///< the rank to receive from, or -1
  std::size_t receivedCount;  ///< elements to receive; the sender's count
};

/// A call in which a rank sends a message of elements T to one rank, receives one from another, or does both.
///
/// run() is called by every thread of every block of `grid`, on the ranks that take part. The n-th call that sends from
/// a to b belongs to the n-th call that receives from a on b, with the same count; the order of calls with other ranks
/// does not matter. Each ordered pair has slots, credits and epochs of its own, so that other ranks are not involved.
/// Two calls on the same scratch that involve the same pair do not overlap in time. A direction without elements takes
/// no part. A wait that fails leaves its record in args.wait's control block; what was received is then meaningless.
///
/// Packets: the call sends, and then receives. The grids of the two ranks need not be alike. A sender is up to four
/// messages ahead of the receiver, then it waits.
///
/// Protocol::Simple: half of the blocks send and half receive, so that neither waits for the other; a call in one
/// direction may have only that half. A sender waits if the ring has no free slot, so a long message needs a receiver
/// that runs at the same time.
///
/// source(first, valid) and sink(first, pack, valid) are called once for each pack that is sent or received; first is
/// an index in the message. A rank may send to itself: destination and origin are both this rank, and the counts are
/// equal. Input and output do not overlap; a message to oneself may have input == output.
template <class T, CollectiveConfig config>
struct SendReceive {
  using Element = T;
  using Transfer = PairTransfer<T, CollectiveConfig{config.protocol, 2, config.lookahead}>;
  using Copy = PairTransfer<T, CollectiveConfig{config.protocol, 1, config.lookahead}>;
  using Scratch = PairScratch<typename Transfer::Scratch>;
  using Args = SendReceiveArgs<config.ranks, Scratch>;
  static constexpr CollectiveConfig configuration = config;
  static constexpr int maxBlockThreads = Transfer::maxBlockThreads;

  /// The scratch for messages of up to `maxCount` elements. Protocol::Simple: of any size; shape gives the number of
  /// blocks that send and of those that receive, tile size and slots, as of EqualCounts.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, int ranks, const PipelineShape& shape = {}) {
    return {Transfer::scratchFor(maxCount, shape), ranks};
  }

  /// Arguments of a call that neither sends nor receives.
  static MSCCLPP_HOST_DEVICE Args emptyArgs() {
    Args args{};
    args.destination = args.origin = -1;
    return args;
  }

  /// Whether a launch of this shape can run with these arguments: the ranks exist, and the messages fit in the scratch;
  /// a pipeline has twice the blocks that its scratch was made for, or as many if it only sends or only receives.
  /// launch() checks it; a user's kernel that calls run() must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    const int self = args.team.rank();
    const auto isNoneOrRank = [&](int rank) { return rank >= -1 && rank < args.team.size(); };
    if (!isNoneOrRank(args.destination) || !isNoneOrRank(args.origin)) return false;
    if ((args.destination == self) != (args.origin == self)) return false;
    if (args.destination == self && args.count != args.receivedCount) return false;
    typename Transfer::Args pair{};
    pair.scratch = args.scratch.pair;
    pair.count = args.count > args.receivedCount ? args.count : args.receivedCount;
    if constexpr (isPipelined(config.protocol)) {
      const bool isOneWay = args.destination < 0 || args.origin < 0;
      if (shape.blocks != (isOneWay && shape.blocks == pair.scratch.blocks ? 1 : 2) * pair.scratch.blocks) return false;
      shape.blocks = pair.scratch.blocks;
    }
    return Transfer::accepts(pair, shape);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    Transfer::template checkSourceAndSink<Source, Sink>();
    if constexpr (checked) {
      if (!checkArguments<SendReceive>(grid, args)) return false;
    }
    if constexpr (isPipelined(config.protocol)) {
      const int half = args.scratch.pair.blocks;
      const bool isFirst = grid.blockIndex() < half;
      const BlockRange<GridType> blocks(grid, isFirst ? 0 : half, half);
      const bool isWhole = grid.blockCount() == half;
      if (isFirst && !(isWhole && args.destination < 0)) return sendPart(blocks, args, source, sink);
      return receivePart(blocks, args, sink);
    } else {
      const bool isSent = sendPart(grid, args, source, sink);
      return receivePart(grid, args, sink) && isSent;
    }
  }

 private:
  /// A source or sink of a rank that has no use for it.
  struct Nothing {
    MSCCLPP_INLINE Pack<T> operator()(std::size_t /*first*/, int /*valid*/) const { return {}; }
    MSCCLPP_INLINE void operator()(std::size_t /*first*/, const Pack<T>& /*result*/, int /*valid*/) const {}
  };

  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool sendPart(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    if (args.destination < 0 || args.count == 0) return true;
    if (args.destination == args.team.rank()) {
      return Copy::run(grid, pairArgs<PairSide::Alone>(grid, args, args.destination, args.count),
                       {args.destination, args.destination}, source, sink);
    }
    return Transfer::run(grid, pairArgs<PairSide::Sender>(grid, args, args.destination, args.count),
                         {args.team.rank(), args.destination}, source, Nothing());
  }
  template <class GridType, class Sink>
  static MSCCLPP_INLINE bool receivePart(const GridType& grid, const Args& args, const Sink& sink) {
    if (args.origin < 0 || args.receivedCount == 0 || args.origin == args.team.rank()) return true;
    return Transfer::run(grid, pairArgs<PairSide::Receiver>(grid, args, args.origin, args.receivedCount),
                         {args.origin, args.team.rank()}, Nothing(), sink);
  }
};
static_assert(Collective<SendReceive<float, CollectiveConfig{}>>);

}  // namespace mscclpp
