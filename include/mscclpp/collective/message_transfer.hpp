// A message of an ordered pair of ranks: how some blocks of a grid send it, receive it, or copy one to oneself.
#pragma once

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/pair_session.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Transfers messages of elements T, all through the same scratch of pairs. config.ranks: the size of the team.
template <class T, CollectiveConfig config>
struct MessageTransfer {
  using Element = T;
  using Transfer = PairTransfer<T, CollectiveConfig{config.protocol, 2, config.lookahead}>;
  using Copy = PairTransfer<T, CollectiveConfig{config.protocol, 1, config.lookahead}>;
  using Scratch = PairScratch<typename Transfer::Scratch>;
  static constexpr CollectiveConfig configuration = config;
  static constexpr int maxBlockThreads = Transfer::maxBlockThreads;

  /// The scratch for messages of up to `maxCount` elements. Protocol::Simple: of any size; shape gives the number of
  /// rings of a pair (shape.blocks), tile size and slots, as of EqualCounts.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, int ranks, const PipelineShape& shape = {}) {
    return {Transfer::scratchFor(maxCount, shape), ranks, 0};
  }

  /// Whether a message of `count` elements fits in the scratch.
  static MSCCLPP_HOST_DEVICE bool fits(const Scratch& scratch, std::size_t count) {
    typename Transfer::Args pair{};
    pair.scratch = scratch.pair;
    pair.count = count;
    int blocks = 1;
    if constexpr (isPipelined(config.protocol)) blocks = scratch.pair.blocks;
    return Transfer::accepts(pair, {blocks, 1});
  }

  /// Sends the next message of the pair of this rank and `peer`, receives it, or copies it, as `side` says. Called by
  /// all threads of `blocks`, of which there may be any number; those of the peer may be another number. The next
  /// message of the same pair may follow in the same launch, after awaitEnd(). args: team, window and wait of the call.
  /// Returns whether all waits of the calling thread succeeded.
  ///
  /// Protocol::Simple: tiles are distributed over the rings of the pair, in both ranks alike, and each block does some
  /// rings one after the other. Both ranks do them in increasing order, so the first that is not done is in progress on
  /// both.
  template <PairSide side, class GridType, class CallArgs, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& blocks, const CallArgs& args, const Scratch& scratch, int peer,
                                 std::size_t count, const Source& source, const Sink& sink) {
    if (count == 0) return true;
    if constexpr (isPipelined(config.protocol)) {
      const std::size_t tiles = ceilDivide(ceilDivide(count, packSize<T>), scratch.pair.tilePacks);
      const int rings =
          tiles < static_cast<std::size_t>(scratch.pair.blocks) ? static_cast<int>(tiles) : scratch.pair.blocks;
      bool succeeded = true;
      MSCCLPP_NO_UNROLL
      for (int ring = blocks.blockIndex(); ring < rings; ring += blocks.blockCount()) {
        const RenumberedBlock asRing(blocks, ring, scratch.pair.blocks);
        succeeded = runSession<side>(asRing, args, scratch, peer, count, source, sink) && succeeded;
        blocks.block().sync();  // the session's words are written
      }
      return succeeded;
    } else {
      return runSession<side>(blocks, args, scratch, peer, count, source, sink);
    }
  }

  /// Called by all threads of `blocks` between two messages of a pair in a launch. Packets: waits for the other blocks,
  /// since a rank's call gives credit for all slots of the calls before. Returns the same in all threads of a block:
  /// false if that wait failed, after which the block does nothing more for this pair.
  template <PairSide side, class GridType, class CallArgs>
  static MSCCLPP_INLINE bool awaitEnd(const GridType& blocks, const CallArgs& args, const Scratch& scratch, int peer) {
    blocks.block().sync();
    if constexpr (isPipelined(config.protocol)) {
      return true;
    } else {
      if (blocks.blockCount() == 1) return true;
      const auto wordsAt = [&](std::size_t offset) {
        const int self = args.team.rank();
        return reinterpret_cast<std::uint64_t*>(args.window.at(self, partOffset<side>(scratch, self, peer) + offset));
      };
      const std::uint64_t epoch = wordsAt(Scratch::epochsInPart)[blocks.blockIndex()];
      return awaitBlocks(blocks, wordsAt(Scratch::barrierInPart), epoch, args.wait);
    }
  }

  /// A source or sink of a rank that has no use for it.
  struct Nothing {
    MSCCLPP_INLINE Pack<T> operator()(std::size_t /*first*/, int /*valid*/) const { return {}; }
    MSCCLPP_INLINE void operator()(std::size_t /*first*/, const Pack<T>& /*result*/, int /*valid*/) const {}
  };

 private:
  template <PairSide side, class GridType, class CallArgs, class Source, class Sink>
  static MSCCLPP_INLINE bool runSession(const GridType& grid, const CallArgs& args, const Scratch& scratch, int peer,
                                        std::size_t count, const Source& source, const Sink& sink) {
    const int self = args.team.rank();
    const auto call = pairArgs<side>(grid, args, scratch, peer, count);
    if constexpr (side == PairSide::Alone) {
      return Copy::run(grid, call, {self, self}, source, sink);
    } else if constexpr (side == PairSide::Sender) {
      return Transfer::run(grid, call, {self, peer}, source, sink);
    } else {
      return Transfer::run(grid, call, {peer, self}, source, sink);
    }
  }
};

/// Calls body(blocks, part) for the parts of a launch that the calling thread's block works on, and returns whether all
/// calls returned true. Called by all threads of the grid. Block b works on part b % parts with the other blocks of
/// that part, so that any blocks that are resident first belong to all parts alike; where there are fewer blocks than
/// parts, a block does several one after the other.
template <class GridType, class Body>
MSCCLPP_INLINE bool forEachPart(const GridType& grid, int parts, const Body& body) {
  const int blocks = grid.blockCount();
  const int step = blocks < parts ? blocks : parts;
  bool succeeded = true;
  MSCCLPP_NO_UNROLL
  for (int part = step == 0 ? 0 : grid.blockIndex() % step; part < parts; part += step) {
    const int count = blocks < parts ? 1 : (blocks - part + parts - 1) / parts;
    const RenumberedBlock ofPart(grid, blocks < parts ? 0 : grid.blockIndex() / parts, count);
    succeeded = body(ofPart, part) && succeeded;
    grid.block().sync();
  }
  return succeeded;
}

}  // namespace mscclpp
