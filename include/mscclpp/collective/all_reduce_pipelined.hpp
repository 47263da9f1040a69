// All-reduce of messages of any size: tiles are pushed through a ring of scratch slots, ordered by one step counter per
// pair of blocks.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// Scratch of a pipelined all-reduce. Block b of every rank communicates only with block b of the other ranks, through
/// its own ring and counters.
struct PipelineScratch {
  static constexpr int initialByte = 0;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 0;

  std::size_t tilePacks;  ///< packs that a block sends to each peer in a step; a multiple of 8
  int ranks;
  int blocks;  ///< number of blocks of every launch on this scratch
  int slots;   ///< ring slots: at least 2 * lookahead

  /// Bytes of the ring of one phase (inputs or results) of a block, with the tiles of all ranks.
  MSCCLPP_HOST_DEVICE std::size_t ringBytes() const {
    return static_cast<std::size_t>(slots) * static_cast<std::size_t>(ranks) * tilePacks * sizeof(Word128);
  }
  MSCCLPP_HOST_DEVICE std::size_t blockBytes() const { return 2 * ringBytes(); }
  MSCCLPP_HOST_DEVICE std::size_t countersOffset() const { return blockBytes() * static_cast<std::size_t>(blocks); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const {
    return countersOffset() + static_cast<std::size_t>(blocks) * counterStride();
  }
  /// Bytes of the counters of a block: one 64-bit word per rank, in cache lines of their own.
  MSCCLPP_HOST_DEVICE std::size_t counterStride() const {
    return roundUp(static_cast<std::size_t>(ranks) * sizeof(std::uint64_t), 128);
  }

  /// Offset, in bytes, of the slot that rank `from` writes for `block` in `phase` (0: inputs, 1: results) of tile
  /// `tile`.
  MSCCLPP_HOST_DEVICE std::size_t tileOffset(int block, int phase, std::size_t tile, int from) const {
    // 32 bits, since a 64-bit division takes about 100 instructions and no message has 2^32 tiles.
    const std::uint32_t slot = static_cast<std::uint32_t>(tile) % static_cast<std::uint32_t>(slots);
    return static_cast<std::size_t>(block) * blockBytes() + static_cast<std::size_t>(phase) * ringBytes() +
           (slot * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(from)) * tileBytes();
  }
  MSCCLPP_HOST_DEVICE std::size_t tileBytes() const { return tilePacks * sizeof(Word128); }
  MSCCLPP_HOST_DEVICE std::size_t counterOffset(int block, int from) const {
    return countersOffset() + static_cast<std::size_t>(block) * counterStride() +
           static_cast<std::size_t>(from) * sizeof(std::uint64_t);
  }
};

/// Whether tiles are copied by memcpy, which on a CPU thread is faster than a loop over packs.
template <class Block, class Access>
concept HasContiguousTiles = SingleThread<Block> && ArrayAccess<Access>;

/// AllReduce by a pipeline of tiles; collective/all_reduce.hpp documents the parameters.
///
/// Step t of a block, with L = lookahead: wait until every peer has completed step t - L; push tile t of each peer's
/// slice to that peer; reduce tile t - L of this rank's slice and push the result to all peers; store tile t - 2L of
/// the peers' results to the output; publish the completion of step t (release). The counter thus shows that the peer's
/// tiles of step t - L and before have arrived, that its results have, and that its ring slots are free. A slot is
/// reused after `slots` tiles, and read at most 2L steps after it was written, so 2L slots suffice (proof in
/// docs/memory_model.md).
template <class T, class Op, AllReduceConfig config>
struct AllReducePipelined {
  using Message = PackedMessage<T>;
  static constexpr int ranks = config.ranks;
  static constexpr std::size_t lookahead = static_cast<std::size_t>(config.lookahead);
  static_assert(config.lookahead >= 1, "lookahead must be at least 1 step");

  template <class Args, Grid GridType, class Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    const auto block = grid.block();
    const int blockIndex = grid.blockIndex();
    const auto& team = args.team;
    const PipelineScratch& scratch = args.pipeline;
    const Message message{args.count};
    auto&& trace = traceOf(grid);
    auto wait = tracedWait(args.wait, trace);

    const std::size_t packs = message.packs();
    const std::size_t slice = roundUp(ceilDivide(packs, static_cast<std::size_t>(team.size())), 8);
    const std::size_t stride = scratch.tilePacks * static_cast<std::size_t>(grid.blockCount());
    const std::size_t tiles = ceilDivide(slice, stride);
    const std::size_t steps = tiles + 2 * lookahead;
    // Counters never decrease: a call starts where the previous one ended. All blocks take the same number of steps.
    const std::uint64_t base = args.epochs.current(grid);
    const int rotation = team.rotation(static_cast<std::uint32_t>(blockIndex));

    // The packs of tile `tile` of the slice of `rank` that this block moves, as indices into the message.
    const auto tileOf = [&](int rank, std::size_t tile) {
      const Range whole = steppedPart(packs, slice, static_cast<std::size_t>(rank));
      const std::size_t start = tile * stride + static_cast<std::size_t>(blockIndex) * scratch.tilePacks;
      const Range part = steppedPart(whole.size() > start ? whole.size() - start : 0, scratch.tilePacks, 0);
      return Range{whole.begin + start, whole.begin + start + part.size()};
    };

    // The three parts of a step, each called by all threads of a group.
    const auto waitForPeers = [&](const auto& group, std::size_t step) {
      if (step < lookahead) return;
      for (int i = group.rank(); i < team.size() - 1; i += group.size()) {
        waitForPeer(wait, args, team.peer(i), blockIndex, base + step - lookahead + 1);
      }
    };
    const auto work = [&](const auto& group, std::size_t step) {
      if (step < tiles) {
        const TraceSpan span(trace, TraceId::Push, step);
        const std::size_t offset = scratch.tileOffset(blockIndex, 0, step, team.rank());
        forEachPeerBatch(team, rotation, [&](const int(&peers)[batch]) {
          Range parts[batch];
          std::byte* slots[batch];
          MSCCLPP_UNROLL
          for (int p = 0; p < batch; ++p) {
            parts[p] = tileOf(peers[p], step);
            slots[p] = args.window.at(peers[p], offset);
          }
          push(group, message, parts, slots, source);
        });
      }
      if (step >= lookahead && step - lookahead < tiles) {
        const TraceSpan span(trace, TraceId::Reduce, step);
        const std::size_t tile = step - lookahead;
        reduceAndBroadcast(group, args, message, tileOf(team.rank(), tile), tile, blockIndex, rotation, source, sink);
      }
      if (step >= 2 * lookahead) {
        const TraceSpan span(trace, TraceId::Collect, step);
        const std::size_t tile = step - 2 * lookahead;
        const std::size_t offset = scratch.tileOffset(blockIndex, 1, tile, 0);
        forEachPeerBatch(team, rotation, [&](const int(&peers)[batch]) {
          Range parts[batch];
          const std::byte* slots[batch];
          MSCCLPP_UNROLL
          for (int p = 0; p < batch; ++p) {
            parts[p] = tileOf(peers[p], tile);
            slots[p] = args.window.at(team.rank(), offset) + static_cast<std::size_t>(peers[p]) * scratch.tileBytes();
          }
          collect(group, message, parts, slots, sink);
        });
      }
    };
    // Not called after a failed wait: the block's data is meaningless then, and the peers are to time out too.
    const auto publish = [&](const auto& group, std::size_t step) {
      if (step + lookahead >= steps) return;  // no peer waits for the last steps, which only collect
      const TraceSpan span(trace, TraceId::Publish, step);
      for (int i = group.rank(); i < team.size() - 1; i += group.size()) {
        arch::store<arch::Order::Release, arch::Scope::System>(counter(args, team.peer(i), blockIndex, team.rank()),
                                                               base + step + 1);
      }
    };

    if constexpr (WarpSpecializedGrid<GridType> && lookahead >= 2) {
      if (grid.warpCount() > 1) {
        runWarpSpecialized(grid, steps, waitForPeers, work, publish, [&] { return wait.failed(); });
        finish(block, args, blockIndex, base + steps);
        return;
      }
    }
    // One warp waits and publishes for the block: if a wait fails in one of its lanes, none of them publishes.
    const auto warp = grid.warp();
    const bool isLeader = grid.warpIndex() == 0;
    for (std::size_t step = 0; step < steps; ++step) {
      if (isLeader) waitForPeers(warp, step);
      block.sync();
      work(block, step);
      block.sync();
      if (isLeader && !warp.any(wait.failed())) publish(warp, step);
    }
    finish(block, args, blockIndex, base + steps);
  }

 private:
  /// The number of peers whose tiles are moved together, a load from each in flight before the first store.
  static constexpr int batch = ranks > 1 ? ranks - 1 : 1;

  /// Calls f(peers) for all peers, in the order of a block with this rotation, a batch at a time.
  template <class TeamType, class F>
  static MSCCLPP_INLINE void forEachPeerBatch(const TeamType& team, int rotation, const F& f) {
    MSCCLPP_UNROLL
    for (int first = 0; first < team.size() - 1; first += batch) {
      int peers[batch];
      MSCCLPP_UNROLL
      for (int p = 0; p < batch; ++p) peers[p] = team.peer(first + p, rotation);
      f(peers);
    }
  }

  /// Runs the steps with the block's last warp waiting and publishing for the others. A release takes 1 to 2 us, until
  /// all the block's stores have completed, during which the workers already do the next step. The control warp waits
  /// one step ahead of the workers, never two, so two alternating named barriers of each kind suffice. To do so it
  /// waits for step t + 1 before it publishes step t; with a lookahead of 1 the ranks would deadlock.
  template <class GridType, class WaitForPeers, class Work, class Publish, class Failed>
  static MSCCLPP_INLINE void runWarpSpecialized(const GridType& grid, std::size_t steps,
                                                const WaitForPeers& waitForPeers, const Work& work,
                                                const Publish& publish, const Failed& failed) {
    const auto ready = [](std::size_t step) { return static_cast<int>(step % 2); };
    const auto done = [](std::size_t step) { return 2 + static_cast<int>(step % 2); };
    if (grid.isControlWarp()) {
      const auto warp = grid.warp();
      const auto waitAndArrive = [&](std::size_t step) {
        waitForPeers(warp, step);
        warp.sync();
        grid.namedBarrierArrive(ready(step));
      };
      waitAndArrive(0);
      for (std::size_t step = 0; step < steps; ++step) {
        if (step + 1 < steps) waitAndArrive(step + 1);
        grid.namedBarrierWait(done(step));
        if (!warp.any(failed())) publish(warp, step);
      }
    } else {
      const auto workers = grid.workers();
      for (std::size_t step = 0; step < steps; ++step) {
        grid.namedBarrierWait(ready(step));
        work(workers, step);
        grid.namedBarrierArrive(done(step));
      }
    }
  }

  template <class Block, class Args>
  static MSCCLPP_INLINE void finish(const Block& block, const Args& args, int blockIndex, std::uint64_t next) {
    block.sync();  // every thread has read the word
    // Only this block uses this word: every launch on this scratch has the same number of blocks.
    if (block.rank() == 0) args.epochs.words[blockIndex] = next;
  }

  template <class Args>
  static MSCCLPP_INLINE std::uint64_t* counter(const Args& args, int at, int block, int from) {
    return reinterpret_cast<std::uint64_t*>(args.window.at(at, args.pipeline.counterOffset(block, from)));
  }

  template <class Wait, class Args>
  static MSCCLPP_INLINE void waitForPeer(Wait& wait, const Args& args, int peer, int block, std::uint64_t needed) {
    const WaitSite site{WaitOperation::Progress, args.team.rank(), peer, static_cast<std::uint32_t>(block), needed};
    const std::uint64_t* word = counter(args, args.team.rank(), block, peer);
    wait.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(word);
      return seen >= needed;
    });
  }

  /// Push: a tile of this rank's input to the slot at each peer of a batch.
  template <class Block, class Source>
  static MSCCLPP_INLINE void push(const Block& block, const Message& message, const Range (&parts)[batch],
                                  std::byte* const (&slots)[batch], const Source& source) {
    if constexpr (HasContiguousTiles<Block, Source>) {
      for (int p = 0; p < batch; ++p)
        arch::copyBytes(slots[p], source.data() + parts[p].begin * packSize<T>, message.bytes(parts[p]));
    } else {
      forEachPack(
          block, parts, [&](int p, std::size_t i) { return toWord<T>(message.load(source, parts[p].begin + i)); },
          [&](int p, std::size_t i, const Word128& value) { arch::storeWide(slots[p] + i * sizeof(Word128), value); });
    }
  }

  /// Collect: a tile of the results of each peer of a batch to the output.
  template <class Block, class Sink>
  static MSCCLPP_INLINE void collect(const Block& block, const Message& message, const Range (&parts)[batch],
                                     const std::byte* const (&slots)[batch], const Sink& sink) {
    if constexpr (HasContiguousTiles<Block, Sink>) {
      for (int p = 0; p < batch; ++p)
        arch::copyBytes(sink.data() + parts[p].begin * packSize<T>, slots[p], message.bytes(parts[p]));
    } else {
      forEachPack(
          block, parts, [&](int p, std::size_t i) { return arch::loadWide(slots[p] + i * sizeof(Word128)); },
          [&](int p, std::size_t i, const Word128& value) {
            message.store(sink, parts[p].begin + i, fromWord<T>(value));
          });
    }
  }

  /// Reduce and broadcast: a tile of this rank's slice, in rank order, to the output and to every peer's slot.
  template <class Block, class Args, class Source, class Sink>
  static MSCCLPP_INLINE void reduceAndBroadcast(const Block& block, const Args& args, const Message& message,
                                                Range packs, std::size_t tile, int blockIndex, int rotation,
                                                const Source& source, const Sink& sink) {
    const auto& team = args.team;
    const PipelineScratch& scratch = args.pipeline;
    const std::byte* const inputs = args.window.at(team.rank(), scratch.tileOffset(blockIndex, 0, tile, 0));
    const std::size_t tileBytes = scratch.tileBytes();
    const auto reduce = [&](std::size_t i) {
      const Word128 own = toWord<T>(message.load(source, packs.begin + i));
      return reduceInOrder(team, own, [&](int from) {
        return arch::loadWide(inputs + static_cast<std::size_t>(from) * tileBytes + i * sizeof(Word128));
      });
    };
    const std::size_t results = scratch.tileOffset(blockIndex, 1, tile, team.rank());
    const auto slotAt = [&](int p) { return args.window.at(team.peer(p, rotation), results); };
    const auto storeResult = [&](const Word128& value, std::size_t i) {
      message.store(sink, packs.begin + i, fromWord<T>(value));
    };
    if constexpr (HasContiguousTiles<Block, Source> && HasContiguousTiles<Block, Sink>) {
      const std::size_t bytes = message.bytes(packs);
      const std::size_t full = bytes / sizeof(Word128);
      const std::byte* contributions[ranks > 0 ? ranks : maxTeamSize];
      for (int r = 0; r < team.size(); ++r) {
        contributions[r] = r == team.rank()
                               ? reinterpret_cast<const std::byte*>(source.data() + packs.begin * packSize<T>)
                               : inputs + static_cast<std::size_t>(r) * tileBytes;
      }
      auto* const output = reinterpret_cast<std::byte*>(sink.data() + packs.begin * packSize<T>);
      reduceFullPacks(contributions, team.size(), output, full);
      if (full < packs.size()) {
        storeResult(reduce(full), full);
      }
      for (int p = 0; p < team.size() - 1; ++p) arch::copyBytes(slotAt(p), output, bytes);
    } else {
      const auto step = static_cast<std::size_t>(block.size());
      for (auto i = static_cast<std::size_t>(block.rank()); i < packs.size(); i += step) {
        const Word128 value = reduce(i);
        MSCCLPP_UNROLL
        for (int p = 0; p < team.size() - 1; ++p) arch::storeWide(slotAt(p) + i * sizeof(Word128), value);
        storeResult(value, i);
      }
    }
  }

  /// The reduction, in rank order, of this rank's pack `own` and those that load(rank) returns for the others.
  template <class TeamType, class Load>
  static MSCCLPP_INLINE Word128 reduceInOrder(const TeamType& team, const Word128& own, const Load& load) {
    if constexpr (ranks > 0) {
      Word128 terms[ranks];  // all loads are in flight before the first is used
      MSCCLPP_UNROLL
      for (int r = 0; r < ranks; ++r) {
        terms[r] = own;
        if (r != team.rank()) terms[r] = load(r);
      }
      PackReducer<T, Op> reducer(fromWord<T>(terms[0]));
      MSCCLPP_UNROLL
      for (int r = 1; r < ranks; ++r) reducer.add(fromWord<T>(terms[r]));
      return toWord<T>(reducer.finish(ranks));
    } else {
      PackReducer<T, Op> reducer(fromWord<T>(team.rank() == 0 ? own : load(0)));
      for (int r = 1; r < team.size(); ++r) reducer.add(fromWord<T>(r == team.rank() ? own : load(r)));
      return toWord<T>(reducer.finish(team.size()));
    }
  }

  /// Reduces `packs` full packs of arrays, without a branch per pack, so that memory bandwidth is the limit.
  static MSCCLPP_INLINE void reduceFullPacks(const std::byte* const* contributions, int size, std::byte* results,
                                             std::size_t packs) {
    for (std::size_t at = 0; at < packs * sizeof(Word128); at += sizeof(Word128)) {
      PackReducer<T, Op> reducer(fromWord<T>(arch::loadWide(contributions[0] + at)));
      MSCCLPP_UNROLL
      for (int r = 1; r < size; ++r) reducer.add(fromWord<T>(arch::loadWide(contributions[r] + at)));
      arch::storeWide(results + at, toWord<T>(reducer.finish(size)));
    }
  }

  /// For this thread's packs of the parts: load(p, i) for pack i of each part p, then store(p, i, value) for each of
  /// them. Called by every thread of block.
  template <class Block, class Load, class Store>
  static MSCCLPP_INLINE void forEachPack(const Block& block, const Range (&parts)[batch], const Load& load,
                                         const Store& store) {
    std::size_t longest = 0;
    MSCCLPP_UNROLL
    for (int p = 0; p < batch; ++p) longest = parts[p].size() > longest ? parts[p].size() : longest;
    const auto step = static_cast<std::size_t>(block.size());
    for (auto i = static_cast<std::size_t>(block.rank()); i < longest; i += step) {
      Word128 values[batch] = {};
      MSCCLPP_UNROLL
      for (int p = 0; p < batch; ++p) {
        if (i < parts[p].size()) values[p] = load(p, i);
      }
      MSCCLPP_UNROLL
      for (int p = 0; p < batch; ++p) {
        if (i < parts[p].size()) store(p, i, values[p]);
      }
    }
  }
};

}  // namespace mscclpp
