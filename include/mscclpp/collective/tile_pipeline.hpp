// A tile pipeline: one call of a collective over messages of any size, whose stages work on different tiles at a time.
// Tiles pass through rings of slots, ordered by one step counter per pair of blocks.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/collective/tile_rings.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A pack of a tile, for the operations of a stage.
struct TilePosition {
  std::size_t pack;  ///< in the slice
  std::size_t slot;  ///< in the tile
  bool active;       ///< the slice has this pack
};

/// One call of a collective over tiles, as seen by one thread of a grid. All threads of the grid construct it with the
/// same arguments, on every rank, and call run() once, with the same stages and layouts.
///
/// Step t of a block, with L = lookahead: wait for the peers; each stage works on tile t - kL, where k is the number of
/// stages up to it that receive; publish the completion of step t (release). A stage sends only what the peers receive
/// by the next stage that does, L steps later, so a wait until a peer has completed step t - L shows that what a stage
/// needs of it has arrived. The same counter shows that slots are
/// free: SlotReuse, and docs/memory_model.md, which has the proofs.
///
/// Two calls on the same rings do not overlap in time, per block: block b may start a call when block b has ended the
/// one before. After a failed wait a block neither moves tiles nor publishes, in this call and all later ones: its
/// peers' waits fail too, and no slot or output is overwritten that a peer may still use.
template <int lookahead, int Ranks, class Rings, Grid GridType, WaitPolicy Wait, TracePolicy Trace>
class TilePipeline {
  static_assert(lookahead >= 1, "lookahead must be at least 1 step");

 public:
  using Index = std::size_t;  ///< of a layout's numbers of packs

  MSCCLPP_INLINE TilePipeline(const GridType& grid, const CollectiveArgs<Ranks, Rings>& args, Wait& wait, Trace& trace)
      : grid_(grid),
        args_(args),
        wait_(wait),
        trace_(trace),
        block_(grid.blockIndex()),
        rotation_(args.team.rotation(static_cast<std::uint32_t>(block_))),
        base_(epochWord()) {}

  /// Runs the stages. What a stage sends through an array, the next one receives. Returns whether all waits of this
  /// thread have succeeded; if not, what its sinks got is meaningless. Where calls are checked, stages that need more
  /// slots than the rings have are answered as by checkArguments() (collective/call_check.hpp).
  template <class... Stages>
  MSCCLPP_INLINE bool run(const Stages&... stages) {
    static_assert((Stages::usesArraysBelow(Rings::arrays) && ...),
                  "a stage uses an array that the scratch does not have");
    static_assert(stage::storesAreAwaited<Stages...>(),
                  "a stage with storeToPeers() is followed by one of awaitStores(), and only such a stage is");
    static_assert(((!Stages::storesToPeers || Stages::isReduction || Rings::reuse == SlotReuse::ByCredits) && ...),
                  "storeToPeers() needs SlotReuse::ByCredits, by which a rank says when it has entered a call, or to "
                  "come after a reduction of the data of all ranks");
    static_assert(
        !(Stages::storesToPeers || ...) || Rings::reuse == SlotReuse::ByData || (int{Stages::receives} + ... + 0) == 1,
        "with storeToPeers() and SlotReuse::ByCredits, only the stage of awaitStores() may wait for peers: a "
        "later step of a call could be taken for the entry of the next one");
    static_assert(stage::arraysMatch<Stages...>(true),
                  "in a tile pipeline, one stage sends through an array, and the next one receives from it");
    static_assert((!Stages::isExchange && ...),
                  "a tile pipeline has no exchanges: what a stage sends, the next one receives");
    constexpr int receiving = (int{Stages::receives} + ... + 0);
    if constexpr (checked) {
      if (!args_.scratch.suffices(lookahead, receiving + 1)) return detail::refuseArguments(grid_, args_);
    }
    constexpr std::size_t delay = std::size_t{receiving} * lookaheadSteps;
    std::size_t longest = 0;
    ((longest = stages.layout.longest() > longest ? stages.layout.longest() : longest), ...);
    tiles_ = ceilDivide(longest, stride());
    const std::size_t steps = tiles_ + delay;

    // The three parts of a step, each called by all threads of a group. The mark of a failed wait is the mark of the
    // calls that follow (EpochWords::stopped): the threads that wait set it before they let the others start the step.
    const auto waitForPeers = [&](const auto& group, std::size_t step) {
      if (startedStopped()) return;
      for (int i = group.rank(); i < team().size() - 1; i += group.size()) {
        const int peer = team().peer(i);
        if (!waitForPeer(peer, needed(peer, step, stages...))) stop();
      }
    };
    const auto work = [&](const auto& group, std::size_t step) {
      if (hasStopped()) return;
      std::size_t delayed = step;  // wraps around before the stage has begun
      (runStage(group, stages, step, delayed -= delayBefore<Stages>()), ...);
    };
    const auto publish = [&](const auto& group, std::size_t step) {
      if (step + lookaheadSteps >= steps) return;  // no peer waits for the last steps of a call
      if (group.any(failed()) || startedStopped()) return;
      const TraceSpan span(trace_, TraceId::Publish, step);
      publishCount(group, base_ + step + 1);
    };
    if (isPublisher()) enter(grid_.warp());
    if constexpr (WarpSpecializedGrid<GridType> && lookahead >= 2) {
      if (grid_.warpCount() > 1) {
        runWarpSpecialized(steps, waitForPeers, work, publish);
        return finish();
      }
    }
    // One warp waits and publishes for the block: if a wait fails in one of its lanes, none of them publishes.
    const auto block = grid_.block();
    const auto warp = grid_.warp();
    for (std::size_t step = 0; step < steps; ++step) {
      if (isPublisher()) waitForPeers(warp, step);
      block.sync();
      work(block, step);
      block.sync();
      if (isPublisher()) publish(warp, step);
    }
    return finish();
  }

 private:
  static constexpr auto lookaheadSteps = static_cast<std::size_t>(lookahead);

  /// The steps by which a stage is behind the one before it.
  template <class S>
  static MSCCLPP_HOST_DEVICE constexpr std::size_t delayBefore() {
    return S::receives ? lookaheadSteps : 0;
  }

  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  MSCCLPP_INLINE bool failed() const { return hasFailed(wait_); }

  // ---- the block's epoch word ----

  /// Scope::Block: only this block uses the word, since every launch on this scratch has the same number of blocks.
  MSCCLPP_INLINE std::uint64_t epochWord() const {
    return arch::load<arch::Order::Relaxed, arch::Scope::Block>(&args_.epochs.words[block_]);
  }
  MSCCLPP_INLINE void setEpochWord(std::uint64_t value) const {
    arch::store<arch::Order::Relaxed, arch::Scope::Block>(&args_.epochs.words[block_], value);
  }
  MSCCLPP_INLINE void stop() const { setEpochWord(base_ | EpochWords::stopped); }
  MSCCLPP_INLINE bool hasStopped() const {
    if constexpr (returnsFailures<Wait>) {
      return (epochWord() & EpochWords::stopped) != 0;
    } else {
      return false;
    }
  }
  /// Whether the block had stopped when this thread started the call. No reason to return at once: in this call,
  /// threads that start late may see the mark that others do not, and all of them meet at the barriers.
  MSCCLPP_INLINE bool startedStopped() const { return (base_ & EpochWords::stopped) != 0; }

  /// Packs between two tiles of a block in a slice.
  MSCCLPP_INLINE std::size_t stride() const {
    return args_.scratch.tilePacks * static_cast<std::size_t>(grid_.blockCount());
  }

  // ---- the order of steps ----

  /// Whether this thread belongs to the warp that waits and publishes.
  MSCCLPP_INLINE bool isPublisher() const {
    if constexpr (WarpSpecializedGrid<GridType> && lookahead >= 2) {
      return grid_.isControlWarp();
    } else {
      return grid_.warpIndex() == 0;
    }
  }

  /// Runs the steps with the block's last warp waiting and publishing for the others. A release takes 1 to 2 us, until
  /// all the block's stores have completed, during which the workers already do the next step. The control warp waits
  /// one step ahead of the workers, never two, so two alternating named barriers of each kind suffice. To do so it
  /// waits for step t + 1 before it publishes step t; with a lookahead of 1 the ranks would deadlock.
  template <class WaitForPeers, class Work, class Publish>
  MSCCLPP_INLINE void runWarpSpecialized(std::size_t steps, const WaitForPeers& waitForPeers, const Work& work,
                                         const Publish& publish) {
    const auto ready = [](std::size_t step) { return static_cast<int>(step % 2); };
    const auto done = [](std::size_t step) { return 2 + static_cast<int>(step % 2); };
    if (grid_.isControlWarp()) {
      const auto warp = grid_.warp();
      const auto waitAndArrive = [&](std::size_t step) {
        waitForPeers(warp, step);
        warp.sync();
        grid_.namedBarrierArrive(ready(step));
      };
      waitAndArrive(0);
      for (std::size_t step = 0; step < steps; ++step) {
        if (step + 1 < steps) waitAndArrive(step + 1);
        grid_.namedBarrierWait(done(step));
        publish(warp, step);
      }
    } else {
      const auto workers = grid_.workers();
      for (std::size_t step = 0; step < steps; ++step) {
        grid_.namedBarrierWait(ready(step));
        work(workers, step);
        grid_.namedBarrierArrive(done(step));
      }
    }
  }

  /// Tells the peers that this block has completed the calls before this one, where the data does not tell them.
  template <class Warp>
  MSCCLPP_INLINE void enter(const Warp& warp) const {
    if constexpr (Rings::reuse == SlotReuse::ByCredits) {
      if (!startedStopped()) publishCount(warp, base_);
    }
  }
  template <class Group>
  MSCCLPP_INLINE void publishCount(const Group& group, std::uint64_t steps) const {
    for (int i = group.rank(); i < team().size() - 1; i += group.size()) {
      arch::store<arch::Order::Release, arch::Scope::System>(counter(team().peer(i), team().rank()), steps);
    }
  }

  /// The count that a peer must have published before this block starts the step, relative to base_.
  template <class... Stages>
  MSCCLPP_INLINE std::int64_t needed(int peer, std::size_t step, const Stages&... stages) const {
    constexpr std::int64_t nothing = -(std::int64_t{1} << 62);
    if constexpr (Rings::reuse == SlotReuse::ByData) {
      return step < lookaheadSteps ? nothing : static_cast<std::int64_t>(step - lookaheadSteps + 1);
    } else {
      std::int64_t result = nothing;
      std::size_t delayed = step;
      const auto add = [&]<class S>(const S& stage) {
        delayed -= delayBefore<S>();
        const std::int64_t count = neededByStage(peer, step, delayed, stage);
        if (count > result) result = count;
      };
      (add(stages), ...);
      return result;
    }
  }
  /// The same for one stage that works on tile `tile` in the step.
  template <class S>
  MSCCLPP_INLINE std::int64_t neededByStage(int peer, std::size_t step, std::size_t tile, const S& stage) const {
    constexpr std::int64_t nothing = -(std::int64_t{1} << 62);
    if (tile >= tiles_) return nothing;
    if (stage.receivesFrom(team().rank(), peer)) return static_cast<std::int64_t>(step - lookaheadSteps + 1);
    if (!stage.sendsTo(team().rank(), peer)) return nothing;
    // An output may be written once the peer has entered this call.
    if constexpr (S::storesToPeers) return 0;
    // The tile that was in the slot before: `slots` numbers earlier, or twice that if there was none in the gap.
    const auto slots = static_cast<std::int64_t>(args_.scratch.slots);
    const auto gap = static_cast<std::int64_t>(args_.scratch.gap());
    const std::int64_t before = static_cast<std::int64_t>(tile) - slots;
    const std::int64_t previous = before < 0 && before >= -gap ? before - slots : before;
    const auto delay = static_cast<std::int64_t>(step - tile + lookaheadSteps);  // of the stage that reads it
    return previous + delay + 1;
  }
  /// Returns false if the wait failed.
  MSCCLPP_INLINE bool waitForPeer(int peer, std::int64_t relative) {
    const std::uint64_t count = base_ + static_cast<std::uint64_t>(relative);
    if (static_cast<std::int64_t>(count) <= 0) return true;
    const WaitSite site{WaitOperation::Progress, team().rank(), peer, static_cast<std::uint32_t>(block_), count};
    const std::uint64_t* word = counter(team().rank(), peer);
    return wait_.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(word);
      return seen >= count;
    });
  }
  MSCCLPP_INLINE std::uint64_t* counter(int at, int from) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(at, args_.scratch.counterOffset(block_, from)));
  }

  /// Ends the call in all threads of the block.
  MSCCLPP_INLINE bool finish() const {
    grid_.block().sync();  // no thread reads the word any more
    if (isPublisher()) {
      const auto warp = grid_.warp();
      const bool stops = warp.any(failed() || startedStopped());
      if (warp.rank() == 0) setEpochWord(stops ? base_ | EpochWords::stopped : base_ + tiles_ + args_.scratch.gap());
    }
    return !failed() && !startedStopped();
  }

  // ---- the work of a stage on a tile ----

  /// The number of peers whose tiles are moved together, a load from each in flight before the first store.
  static constexpr int batch = Ranks > 1 ? Ranks - 1 : 1;

  /// The session of the operations of a stage: the slots of one tile.
  struct Tile {
    TilePipeline& pipeline;
    std::size_t offset;  ///< of the slot in array 0

    MSCCLPP_INLINE const Team<Ranks>& team() const { return pipeline.args_.team; }
    MSCCLPP_INLINE int rotation() const { return pipeline.rotation_; }
    MSCCLPP_INLINE Trace& trace() const { return pipeline.trace_; }
    MSCCLPP_INLINE Word128 encode(const Word128& pack) const { return pack; }
    MSCCLPP_INLINE Word128 decode(const Word128& word) const { return word; }

    MSCCLPP_INLINE void copy(void* to, const void* from, std::size_t bytes) const { arch::copyBytes(to, from, bytes); }

    /// The slots that this rank writes at a peer, and those that a peer writes here.
    MSCCLPP_INLINE std::byte* outgoing(int array, int peer) const { return slots(array, peer, team().rank()); }
    MSCCLPP_INLINE std::byte* incoming(int array, int peer) const { return slots(array, team().rank(), peer); }

    MSCCLPP_INLINE void send(int array, int peer, const TilePosition& at, const Word128& word) const {
      if (at.active) arch::storeWide(outgoing(array, peer) + at.slot * sizeof(Word128), word);
    }
    MSCCLPP_INLINE void broadcast(int array, const TilePosition& at, const Word128& word, int rotation) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < team().size() - 1; ++i) send(array, team().peer(i, rotation), at, word);
    }
    template <int N>
    MSCCLPP_INLINE bool receive(int array, const int (&peers)[N], const TilePosition (&at)[N],
                                Word128 (&words)[N]) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < N; ++i) {
        if (at[i].active) words[i] = arch::loadWide(incoming(array, peers[i]) + at[i].slot * sizeof(Word128));
      }
      return true;
    }
    template <class T, class Op>
    MSCCLPP_INLINE bool reduce(int array, const TilePosition& at, Word128& word, const Op& op) const {
      if (!at.active) return true;
      const auto load = [&](int from) {
        return from == team().rank() ? word : arch::loadWide(incoming(array, from) + at.slot * sizeof(Word128));
      };
      if constexpr (Ranks > 0) {
        Word128 words[Ranks];  // all loads are in flight before the first is used
        MSCCLPP_UNROLL
        for (int r = 0; r < Ranks; ++r) words[r] = load(r);
        word = reduceWords<T>(words, op);
      } else {
        PackReducer<T, Op> reducer(fromWord<T>(load(0)), op);
        for (int r = 1; r < team().size(); ++r) reducer.add(fromWord<T>(load(r)));
        word = toWord<T>(reducer.finish(team().size()));
      }
      return true;
    }
    /// The same for `bytes` bytes in one piece: `own` is this rank's contribution.
    template <class T, class Op>
    MSCCLPP_INLINE void reduceBlock(int array, const std::byte* own, std::byte* result, std::size_t bytes,
                                    const Op& op) const {
      const int rank = team().rank();
      if (rank < 0) __builtin_unreachable();  // g++ at -O2 imagines a rank -1 here and warns of its array subscript
      const std::byte* contributions[Ranks > 0 ? Ranks : maxTeamSize];
      for (int r = 0; r < team().size(); ++r) contributions[r] = r == rank ? own : incoming(array, r);
      reduceArrays<T>(contributions, team().size(), result, bytes, op);
    }

   private:
    MSCCLPP_INLINE std::byte* slots(int array, int at, int from) const {
      const auto& rings = pipeline.args_.scratch;
      return pipeline.args_.window.at(
          at, offset + static_cast<std::size_t>(array) * rings.ringBytes() + rings.tileInSlot(from, at));
    }
  };

  /// The part of a slice that is tile `tile` of this block.
  MSCCLPP_INLINE Range partOf(std::size_t packs, std::size_t tile) const {
    const std::size_t start = tile * stride() + static_cast<std::size_t>(block_) * args_.scratch.tilePacks;
    const Range part = steppedPart(packs > start ? packs - start : 0, args_.scratch.tilePacks, 0);
    return {start, start + part.size()};
  }

  /// Runs a stage in a step, in which it works on tile `current`.
  template <class Group, class S>
  MSCCLPP_INLINE void runStage(const Group& group, const S& stage, std::size_t step, std::size_t current) {
    if constexpr (S::isOnlyWait) return;
    if (current >= tiles_ || !stage.isOn(team().rank())) return;
    const TraceSpan span(trace_, S::traceId, step);
    Tile session{*this, args_.scratch.slotOffset(block_, base_ + current)};
    if constexpr (S::peers == stage::Peers::Each) {
      MSCCLPP_UNROLL
      for (int first = 0; first < team().size() - 1; first += batch) {
        int peers[batch];
        MSCCLPP_UNROLL
        for (int p = 0; p < batch; ++p) peers[p] = team().peer(first + p, rotation_);
        runBatch(group, stage, session, current, peers, peers);
      }
    } else {
      const int slices[1] = {team().rank()};
      const int peers[1] = {S::peers == stage::Peers::One ? stage.rank : -1};
      runBatch(group, stage, session, current, slices, peers);
    }
  }

  template <class Group, class S, int n>
  MSCCLPP_INLINE void runBatch(const Group& group, const S& stage, Tile& session, std::size_t tile,
                               const int (&slices)[n], const int (&peers)[n]) {
    Range parts[n];
    std::size_t longest = 0;
    MSCCLPP_UNROLL
    for (int p = 0; p < n; ++p) {
      parts[p] = partOf(stage.layout.packs(slices[p]), tile);
      longest = parts[p].size() > longest ? parts[p].size() : longest;
    }
    if constexpr (SingleThread<Group> && S::isContiguous) {
      for (int p = 0; p < n; ++p) {
        stage::Call<Tile, S, 1> call{session, stage.layout, {slices[p]}, {peers[p]}, 0};
        if (parts[p].size() > 0) stage::copyBlock(call, stage.chain, parts[p]);
      }
    } else {
      auto i = static_cast<std::size_t>(group.rank());
      const auto threads = static_cast<std::size_t>(group.size());
      constexpr int together = packsTogether<S, n>();
      if constexpr (together > 1) {
        std::size_t shortest = longest;
        MSCCLPP_UNROLL
        for (int p = 0; p < n; ++p) shortest = parts[p].size() < shortest ? parts[p].size() : shortest;
        for (; i + (together - 1) * threads < shortest; i += together * threads) {
          apply<together>(stage, session, slices, peers, parts, i, threads);
        }
      }
      for (; i < longest; i += threads) apply<1>(stage, session, slices, peers, parts, i, threads);
    }
  }

  /// The number of packs of each slice that a thread handles together, so that about four loads are in flight.
  template <class S, int n>
  static MSCCLPP_HOST_DEVICE constexpr int packsTogether() {
    constexpr int loads = n * (S::isReduction ? (Ranks > 0 ? Ranks : 4) : 1);
    return loads < 4 ? 4 / loads : 1;
  }

  /// Performs the chain on packs i, i + threads, ... of the parts.
  template <int together, class S, int n>
  MSCCLPP_INLINE void apply(const S& stage, Tile& session, const int (&slices)[n], const int (&peers)[n],
                            const Range (&parts)[n], std::size_t i, std::size_t threads) {
    constexpr int packs = n * together;
    stage::Call<Tile, S, packs> call{session, stage.layout, {}, {}, 0};
    TilePosition at[packs];
    Word128 words[packs] = {};
    MSCCLPP_UNROLL
    for (int j = 0; j < packs; ++j) {
      const int p = j % n;
      const std::size_t slot = i + static_cast<std::size_t>(j / n) * threads;
      call.slices[j] = slices[p];
      call.peers[j] = peers[p];
      at[j] = {parts[p].begin + slot, slot, packs == 1 || together > 1 || slot < parts[p].size()};
    }
    stage.chain.apply(call, at, words);
  }

  const GridType& grid_;
  const CollectiveArgs<Ranks, Rings>& args_;
  Wait& wait_;
  Trace& trace_;
  const int block_;
  const int rotation_;
  const std::uint64_t base_;  ///< the number of the first tile of this call, and of its first step
  std::size_t tiles_ = 0;     ///< of a block, in the longest slice
};

/// TilePipeline with the other template arguments deduced.
template <int lookahead, Grid GridType, int Ranks, class Rings, WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE auto makeTilePipeline(const GridType& grid, const CollectiveArgs<Ranks, Rings>& args, Wait& wait,
                                     Trace& trace) {
  return TilePipeline<lookahead, Ranks, Rings, GridType, Wait, Trace>(grid, args, wait, trace);
}

}  // namespace mscclpp
