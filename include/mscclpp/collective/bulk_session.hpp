// A bulk session: one call of a collective that copies arrays straight into the outputs of the peers, by the copy
// engines of a few multiprocessors.
#pragma once

#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/dynamic_parts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/bulk_counters.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// How the blocks of a bulk session copy: each of the first `queues` warps has a queue of bulk copies of this shape.
struct BulkSessionShape {
  BulkCopyConfig queue;
  int queues;
};

/// The shape of the compiled collectives, for few blocks. ranks: of the team; 0: any number.
MSCCLPP_HOST_DEVICE constexpr BulkSessionShape bulkSessionShape(int ranks) {
  return {{.chunks = 6, .prefetchDepth = 3, .destinations = ranks > 0 ? ranks : maxTeamSize}, 2};
}

/// Shared memory of a block, in bytes.
template <BulkSessionShape shape>
inline constexpr std::size_t bulkSessionBytes = shape.queues * sizeof(BulkScratch<shape.queue>);

/// One call of a collective by bulk copies, as seen by one thread of a grid. All threads of the grid construct it with
/// the same arguments, on every rank, and call run() once, with the same stages and layouts. Sources and sinks are
/// arrays; the outputs of the peers are registered (storeToPeers()).
///
/// Block b of a rank
///   1. says at its entry that its output may be written, and waits until block b of each rank that it sends to has
///      said so;
///   2. copies. The messages are cut into parts, which the queues of all blocks take from a work counter: blocks differ
///      in the rate that they get. Parts of short messages are smaller, so that every queue gets one. What the engine
///      cannot copy, since source and destination are not congruent modulo 16, or without shared memory, the threads of
///      the blocks copy in equal shares;
///   3. tells its peers when the copies that it has made have completed, and waits until theirs have. Any block may
///      have made any copy: the output is complete once all blocks have returned from run().
///
/// Two calls on the same counters do not overlap in time, and a rank's call starts after all blocks of its previous
/// call have ended: by the order of kernels in a stream or, within a kernel, by a GridBarrier. A block that has a
/// failed wait in any thread copies and publishes nothing more, so that its peers' waits fail too.
///
/// The grid of a GPU needs bulkSessionBytes<shape> bytes of shared memory in each block, which launch() provides. A
/// grid without shared memory, or a GPU before sm_90, copies with its threads.
template <int Ranks, BulkSessionShape shape, Grid GridType, WaitPolicy Wait, TracePolicy Trace>
class BulkSession {
  static_assert(shape.queues > 0, "a bulk session has at least 1 queue in a block");
  static_assert(shape.queue.destinations >= (Ranks > 0 ? Ranks : maxTeamSize),
                "a queue of a bulk session needs a destination for each rank of the team");

 public:
  using Index = std::size_t;  ///< of a layout's numbers of packs

  MSCCLPP_INLINE BulkSession(const GridType& grid, const CollectiveArgs<Ranks, BulkCounters>& args, Wait& wait,
                             Trace& trace)
      : grid_(grid), args_(args), wait_(wait), trace_(trace), base_(args.epochs.current(grid)) {}

  /// Runs the stages. Returns whether all waits of this thread have succeeded; if not, the outputs are meaningless.
  template <class... Stages>
  MSCCLPP_INLINE bool run(const Stages&... stages) {
    static_assert(((Stages::isOnlyWait || (Stages::isContiguous && Stages::sent == 0 && Stages::received == 0)) && ...),
                  "a bulk session (Protocol::Bulk) copies arrays: pass ArraySource and ArraySink, and storeToPeers() "
                  "instead of operations on slots");
    static_assert(stage::storesAreAwaited<Stages...>(),
                  "a stage with storeToPeers() is followed by one of awaitStores(), and only such a stage is");
    if (args_.epochs.hasStopped(base_)) return false;
    std::size_t longest = 0;  // bytes
    ((longest = bytesOf(stages) > longest ? bytesOf(stages) : longest), ...);
    const auto queues = static_cast<std::size_t>(queuesOfBlock() * grid_.blockCount());
    const std::size_t share = roundUp(ceilDivide(longest, queues), shape.queue.chunkBytes);
    partBytes_ = share < args_.scratch.partBytes ? share : args_.scratch.partBytes;
    const auto parts = static_cast<std::uint32_t>(ceilDivide(longest, partBytes_));
    const std::uint64_t next = base_ + parts + queues;
    const auto block = grid_.block();
    const auto warp = grid_.warp();
    const bool signals = grid_.warpIndex() == 0;  // this warp signals and waits for its block

    if (signals) {
      publish(warp, entered(), [](int) { return true; });
      waitFor(warp, entered(), [&](int peer) { return (stages.sendsTo(team().rank(), peer) || ...); });
    }
    block.sync();
    if (!warp.any(hasStopped())) copy(block, warp, parts, next, stages...);
    if (failed()) args_.epochs.stop(base_);
    block.sync();
    if (signals) {
      if (!warp.any(hasStopped())) {
        const TraceSpan span(trace_, TraceId::Publish, base_);
        publish(warp, completed(), [&](int peer) { return (stages.sendsTo(team().rank(), peer) || ...); });
      }
      waitFor(warp, completed(), [&](int peer) { return (stages.receivesFrom(team().rank(), peer) || ...); });
    }
    args_.epochs.advance(grid_, next);
    return !failed();
  }

 private:
  using Queue = BulkCopier<shape.queue>;
  static constexpr bool hasEngine = arch::hasBulkCopies && SharedMemoryGrid<GridType>;

  MSCCLPP_INLINE const Team<Ranks>& team() const { return args_.team; }
  MSCCLPP_INLINE bool failed() const { return hasFailed(wait_); }
  /// Whether a thread of this block, or of another one of this rank, has a failed wait. Lanes of a warp may see it
  /// differently while another block fails.
  MSCCLPP_INLINE bool hasStopped() const { return args_.epochs.hasStopped(base_ + 1); }

  // ---- signals ----

  // What a rank has counted to. A call takes at least two numbers: one part and one queue.
  MSCCLPP_INLINE std::uint64_t entered() const { return base_; }
  MSCCLPP_INLINE std::uint64_t completed() const { return base_ + 1; }

  MSCCLPP_INLINE std::uint64_t* counter(int at, int from) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(at, args_.scratch.counterOffset(grid_.blockIndex(), from)));
  }
  template <class Warp, class Wanted>
  MSCCLPP_INLINE void publish(const Warp& warp, std::uint64_t count, const Wanted& isWanted) const {
    for (int i = warp.rank(); i < team().size() - 1; i += warp.size()) {
      const int peer = team().peer(i);
      if (isWanted(peer)) arch::store<arch::Order::Release, arch::Scope::System>(counter(peer, team().rank()), count);
    }
  }
  template <class Warp, class Wanted>
  MSCCLPP_INLINE void waitFor(const Warp& warp, std::uint64_t count, const Wanted& isWanted) {
    for (int i = warp.rank(); i < team().size() - 1; i += warp.size()) {
      const int peer = team().peer(i);
      if (!isWanted(peer)) continue;
      const auto block = static_cast<std::uint32_t>(grid_.blockIndex());
      const WaitSite site{WaitOperation::Progress, team().rank(), peer, block, count};
      const std::uint64_t* const word = counter(team().rank(), peer);
      wait_.until(site, [&](std::uint64_t& seen) {
        seen = arch::load<arch::Order::Acquire, arch::Scope::System>(word);
        return static_cast<std::int64_t>(seen - count) >= 0;
      });
    }
    if (failed()) args_.epochs.stop(base_);
  }

  // ---- what the stages copy ----

  /// Whether a queue makes the copy; otherwise threads do.
  static MSCCLPP_INLINE bool isByEngine(const void* dst, const void* src) {
    return hasEngine && Queue::areCongruent(dst, src);
  }

  /// The session of the operations of a stage: calls f(dst, src, bytes) for each copy.
  template <class F>
  struct Copies {
    const Team<Ranks>& ranks;
    int order;
    const F& f;

    MSCCLPP_INLINE const Team<Ranks>& team() const { return ranks; }
    MSCCLPP_INLINE int rotation() const { return order; }
    MSCCLPP_INLINE void copy(void* dst, const void* src, std::size_t bytes) const { f(dst, src, bytes); }
  };

  /// The bytes of the longest slice of a stage; too many if the last pack is not whole.
  template <class S>
  static MSCCLPP_INLINE std::size_t bytesOf(const S& stage) {
    return stage.layout.longest() * sizeof(Word128);
  }
  /// The number of slices that this rank copies in a stage.
  template <class S>
  MSCCLPP_INLINE int slicesOf(const S& stage) const {
    if (S::isOnlyWait || !stage.isOn(team().rank())) return 0;
    return S::peers == stage::Peers::Each ? team().size() - 1 : 1;
  }
  /// Calls f(dst, src, bytes) for each copy of slice i of these, with the peers in the order of the rotation.
  template <class S, class F>
  MSCCLPP_INLINE void forEachCopy(const S& stage, int i, int rotation, const F& f) const {
    constexpr bool isForPeers = S::peers == stage::Peers::Each;
    const int slice = isForPeers ? team().peer(i, rotation) : team().rank();
    Copies<F> session{team(), rotation, f};
    stage::Call<Copies<F>, S, 1> call{session, stage.layout, {slice}, {isForPeers ? slice : -1}, 0};
    const Range whole{0, stage.layout.packs(slice)};
    if (whole.size() > 0) stage::copyBlock(call, stage.chain, whole);
  }
  template <class S>
  MSCCLPP_INLINE bool usesEngine(const S& stage) const {
    bool uses = false;
    if constexpr (!S::isOnlyWait) {
      for (int i = 0; i < slicesOf(stage); ++i) {
        forEachCopy(stage, i, 0, [&](void* dst, const void* src, std::size_t) { uses |= isByEngine(dst, src); });
      }
    }
    return uses;
  }

  // ---- copies ----

  /// The warps of a block that have a queue.
  MSCCLPP_INLINE int queuesOfBlock() const {
    return grid_.warpCount() < shape.queues ? grid_.warpCount() : shape.queues;
  }

  template <class Block, class Warp, class... Stages>
  MSCCLPP_INLINE void copy(const Block& block, const Warp& warp, std::uint32_t parts, std::uint64_t next,
                           const Stages&... stages) {
    const TraceSpan span(trace_, TraceId::Push, base_);
    (copyByThreads(block, stages), ...);
    auto* const work = reinterpret_cast<std::uint64_t*>(args_.window.at(team().rank(), args_.scratch.workOffset()));
    if (!(usesEngine(stages) || ...)) {
      // No warp counts parts, so that the counter is set for the next call.
      if (grid_.blockIndex() == 0 && block.rank() == 0) {
        arch::store<arch::Order::Relaxed, arch::Scope::Device>(work, next - BulkCounters::firstEpoch);
      }
      return;
    }
    if constexpr (hasEngine) {
      if (grid_.warpIndex() >= queuesOfBlock()) return;
      // Queues begin with different peers, to spread their traffic over the links.
      const int queue = grid_.blockIndex() * queuesOfBlock() + grid_.warpIndex();
      const int rotation = team().rotation(static_cast<std::uint32_t>(queue));
      Queue copier(warp, reinterpret_cast<typename Queue::Scratch*>(grid_.sharedMemory())[grid_.warpIndex()]);
      forEachDynamicPartFrom(warp, work, base_ - BulkCounters::firstEpoch, parts, [&](std::uint32_t part) {
        const auto enqueue = [&]<class S>(const S& stage) {
          if constexpr (!S::isOnlyWait) enqueuePart(copier, warp, stage, rotation, part);
        };
        if (!failed()) (enqueue(stages), ...);
      });
      copier.finish(warp, wait_);  // what the engine wrote is then visible to this thread, and released by the signal
    }
  }

  /// Queues the copies of a part of all messages.
  template <class Warp, class S>
  MSCCLPP_INLINE void enqueuePart(Queue& copier, const Warp& warp, const S& stage, int rotation, std::uint32_t part) {
    const int slices = slicesOf(stage);
    if (slices == 0) return;
    const auto rangeOf = [&](std::size_t bytes) { return steppedPart(bytes, partBytes_, part); };
    if constexpr (S::peers == stage::Peers::Each) {
      const auto regionAt = [&](int i) {
        CopyRegion region{nullptr, nullptr, 0};
        forEachCopy(stage, i, rotation, [&](void* dst, const void* src, std::size_t bytes) {
          if (!isByEngine(dst, src)) return;
          const Range range = rangeOf(bytes);
          region = {static_cast<std::byte*>(dst) + range.begin, static_cast<const std::byte*>(src) + range.begin,
                    range.size()};
        });
        return region;
      };
      copier.copyRoundRobin(warp, slices, regionAt, wait_);
    } else {
      const std::byte* from = nullptr;
      Range range{0, 0};
      forEachCopy(stage, 0, rotation, [&](void* dst, const void* src, std::size_t bytes) {
        if (!isByEngine(dst, src)) return;
        range = rangeOf(bytes);
        from = static_cast<const std::byte*>(src) + range.begin;
      });
      const auto forEachDestination = [&](const auto& f) {
        forEachCopy(stage, 0, rotation, [&](void* dst, const void* src, std::size_t) {
          if (isByEngine(dst, src)) f(static_cast<std::byte*>(dst) + range.begin);
        });
      };
      copier.copyToEach(warp, forEachDestination, from, range.size(), wait_);
    }
  }

  /// This block's share of what the engine does not copy.
  template <class Block, class S>
  MSCCLPP_INLINE void copyByThreads(const Block& block, const S& stage) const {
    if constexpr (!S::isOnlyWait) {
      const auto blocks = static_cast<std::size_t>(grid_.blockCount());
      const auto index = static_cast<std::size_t>(grid_.blockIndex());
      const int rotation = team().rotation(static_cast<std::uint32_t>(grid_.blockIndex()));
      for (int i = 0; i < slicesOf(stage); ++i) {
        forEachCopy(stage, i, rotation, [&](void* dst, const void* src, std::size_t bytes) {
          if (isByEngine(dst, src)) return;
          const Range mine = steppedPart(bytes, roundUp(ceilDivide(bytes, blocks), 128), index);
          auto* const to = static_cast<std::byte*>(dst) + mine.begin;
          const auto* const from = static_cast<const std::byte*>(src) + mine.begin;
          if constexpr (SingleThread<Block>) {
            arch::copyBytes(to, from, mine.size());
          } else {
            mscclpp::copy(block, to, from, mine.size());
          }
        });
      }
    }
  }

  const GridType& grid_;
  const CollectiveArgs<Ranks, BulkCounters>& args_;
  Wait& wait_;
  Trace& trace_;
  const std::uint64_t base_;   ///< the number of the call; the work counter is one less
  std::size_t partBytes_ = 0;  ///< of each message
};

/// BulkSession with the other template arguments deduced.
template <BulkSessionShape shape, Grid GridType, int Ranks, WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE auto makeBulkSession(const GridType& grid, const CollectiveArgs<Ranks, BulkCounters>& args, Wait& wait,
                                    Trace& trace) {
  return BulkSession<Ranks, shape, GridType, Wait, Trace>(grid, args, wait, trace);
}

}  // namespace mscclpp
