// Send and receive: messages between two ranks, in which no other rank takes part.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/message_transfer.hpp"
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
/// collective/exchange.hpp has calls with more messages.
///
/// run() is called by every thread of every block of `grid`, on the ranks that take part. The n-th call that sends from
/// a to b belongs to the n-th call that receives from a on b, with the same count; the order of calls with other ranks
/// does not matter. Each ordered pair has slots, credits and epochs of its own, so that other ranks are not involved.
/// Two calls on the same scratch that involve the same pair do not overlap in time. A direction without elements takes
/// no part. A wait that fails leaves its record in args.wait's control block; what was received is then meaningless.
/// The grids of the two ranks need not be alike.
///
/// Packets: the call sends, and then receives. A sender is up to four messages ahead of the receiver, then it waits.
///
/// Protocol::Simple: every other block sends, and the others receive, so that neither direction waits for the other; a
/// call with one direction uses all blocks for it. A sender waits if the ring has no free slot, so a long message needs
/// a receiver that runs at the same time.
///
/// source(first, valid) and sink(first, pack, valid) are called once for each pack that is sent or received; first is
/// an index in the message. A rank may send to itself: destination and origin are both this rank, and the counts are
/// equal. Input and output do not overlap; a message to oneself may have input == output.
template <class T, CollectiveConfig config>
struct SendReceive {
  using Element = T;
  using Messages = MessageTransfer<T, CollectiveConfig{config.protocol, config.ranks, config.lookahead}>;
  using Scratch = typename Messages::Scratch;
  using Args = SendReceiveArgs<config.ranks, Scratch>;
  static constexpr CollectiveConfig configuration = config;
  static constexpr int maxBlockThreads = Messages::maxBlockThreads;

  /// The scratch for messages of up to `maxCount` elements. Protocol::Simple: of any size; shape gives the number of
  /// rings of a pair (shape.blocks), which is the most blocks that work on a direction, tile size and slots, as of
  /// EqualCounts.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, int ranks, const PipelineShape& shape = {}) {
    return Messages::scratchFor(maxCount, ranks, shape);
  }

  /// Arguments of a call that neither sends nor receives.
  static MSCCLPP_HOST_DEVICE Args emptyArgs() {
    Args args{};
    args.destination = args.origin = -1;
    return args;
  }

  /// Whether a launch of this shape can run with these arguments: the ranks exist, and the messages fit in the scratch;
  /// a pipeline that sends and receives has at least two blocks. launch() checks it; a user's kernel that calls run()
  /// must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    const int self = args.team.rank();
    const auto isNoneOrRank = [&](int rank) { return rank >= -1 && rank < args.team.size(); };
    if (!isNoneOrRank(args.destination) || !isNoneOrRank(args.origin)) return false;
    if ((args.destination == self) != (args.origin == self)) return false;
    if (args.destination == self && args.count != args.receivedCount) return false;
    const int least = isPipelined(config.protocol) && sends(args) && receives(args) ? 2 : 1;
    if (shape.blocks < least || shape.blocks > maxBlocks) return false;
    return Messages::fits(args.scratch, args.count > args.receivedCount ? args.count : args.receivedCount);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    Messages::Transfer::template checkSourceAndSink<Source, Sink>();
    if constexpr (checked) {
      if (!checkArguments<SendReceive>(grid, args)) return false;
    }
    if constexpr (isPipelined(config.protocol)) {
      const int first = sends(args) ? 0 : 1;
      return forEachPart(grid, receives(args) ? 2 - first : 1 - first, [&](const auto& blocks, int part) {
        return first + part == 0 ? sendPart(blocks, args, source, sink) : receivePart(blocks, args, sink);
      });
    } else {
      const bool isSent = sendPart(grid, args, source, sink);
      return receivePart(grid, args, sink) && isSent;
    }
  }

 private:
  using Nothing = typename Messages::Nothing;

  static MSCCLPP_HOST_DEVICE bool sends(const Args& args) { return args.destination >= 0 && args.count > 0; }
  /// Not a message to oneself, which sendPart() copies.
  static MSCCLPP_HOST_DEVICE bool receives(const Args& args) {
    return args.origin >= 0 && args.receivedCount > 0 && args.origin != args.team.rank();
  }

  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool sendPart(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    if (!sends(args)) return true;
    if (args.destination == args.team.rank()) {
      return Messages::template run<PairSide::Alone>(grid, args, args.scratch, args.destination, args.count, source,
                                                     sink);
    }
    return Messages::template run<PairSide::Sender>(grid, args, args.scratch, args.destination, args.count, source,
                                                    Nothing());
  }
  template <class GridType, class Sink>
  static MSCCLPP_INLINE bool receivePart(const GridType& grid, const Args& args, const Sink& sink) {
    if (!receives(args)) return true;
    return Messages::template run<PairSide::Receiver>(grid, args, args.scratch, args.origin, args.receivedCount,
                                                      Nothing(), sink);
  }
};
static_assert(Collective<SendReceive<float, CollectiveConfig{}>>);

}  // namespace mscclpp
