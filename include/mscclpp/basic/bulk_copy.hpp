// Copies by the bulk copy engine, through a ring of chunks in shared memory, issued by one thread of a group.
#pragma once

#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The ring: `chunks` chunks of `chunkBytes` bytes in flight, of which `prefetchDepth` are being loaded and the others
/// stored. copyRoundRobin() moves `quantum` chunks of each copy in turn; copyToEach() has at most `destinations`
/// destinations.
struct BulkCopyConfig {
  int chunkBytes = 16 << 10;
  int chunks = 12;
  int prefetchDepth = 6;
  int quantum = 1;
  int destinations = 1;
};

/// Source, destination and size of one of several copies.
struct CopyRegion {
  void* dst;
  const void* src;
  std::size_t bytes;
};

/// Shared memory of one BulkCopier.
template <BulkCopyConfig config = BulkCopyConfig{}>
struct BulkScratch {
  struct alignas(128) Chunk {
    std::byte data[config.chunkBytes];
  };
  struct alignas(16) Target {
    std::byte* addresses[config.destinations];
    std::uint32_t bytes;
    std::uint32_t count;  ///< of addresses
  };
  Chunk chunks[config.chunks];
  Target targets[config.chunks];  ///< destinations of each chunk
  BulkBarrier loaded[config.chunks];
};

/// A queue of copies from global memory to global memory, local or a peer's, through a ring of chunks in shared memory.
///
/// Every function is called by all threads of the group together and does not sync the group; the group's first thread
/// issues the bulk copies. The chunks of consecutive copies follow each other without a gap. Each warp of a block may
/// have its own queue.
///
/// copy(), copyRoundRobin() and copyToEach() only queue: the sources must not change, nor the destinations be used,
/// until flush() or finish() has returned. Then proceed as after copy() of basic/copy.hpp: group.sync(), then signal()
/// by one thread. A group.sync() must precede a call if other threads of the group wrote the source or acquired the
/// destination. The first thread's result is false if a wait has failed; the other threads' result is always true.
template <BulkCopyConfig config = BulkCopyConfig{}>
class BulkCopier {
 public:
  static_assert(config.chunkBytes > 0 && config.chunkBytes % 16 == 0 && config.chunkBytes < 1 << 20,
                "chunkBytes must be a multiple of 16 below 1 MiB");
  static_assert(config.prefetchDepth > 0 && config.prefetchDepth < config.chunks,
                "prefetchDepth must be greater than 0 and less than chunks");
  static_assert(config.quantum > 0, "quantum must be at least 1 chunk");
  static_assert(config.destinations > 0, "destinations must be at least 1");

  using Scratch = BulkScratch<config>;

  /// scratch: shared memory for this queue only, until after finish() and a sync of the group.
  template <ThreadGroup Group>
  MSCCLPP_INLINE BulkCopier(const Group& group, Scratch& scratch)
      : scratch_(&scratch), load_{0, 0}, store_{0, 0}, inFlight_(0), complete_(true) {
    if (group.rank() != 0) return;
    for (BulkBarrier& barrier : scratch.loaded) barrier.relaxedInit();
    arch::mbarrierInitFence();
  }

  /// Queues a copy of `bytes` bytes; any size and alignment. If dst and src are congruent modulo 16, the engine copies
  /// everything between the first and the last multiple of 16, and the group copies the rest; otherwise the group
  /// copies everything. The regions must not overlap those of other copies in the queue.
  template <ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool copy(const Group& group, void* dst, const void* src, std::size_t bytes, Wait& wait) {
    return copyRoundRobin(
        group, 1,
        [&](int) {
          return CopyRegion{dst, src, bytes};
        },
        wait);
  }

  /// Queues `count` copies, each as by copy(), interleaved by quantum. For messages to several peers: if each peer's
  /// message were sent as a whole, the blocks of all ranks could saturate the links of some peers while others idle.
  /// regionAt(i) returns the CopyRegion of copy i; it is called before each quantum.
  template <ThreadGroup Group, class RegionAt, WaitPolicy Wait>
  MSCCLPP_INLINE bool copyRoundRobin(const Group& group, int count, const RegionAt& regionAt, Wait& wait) {
    std::size_t longest = 0;
    for (int i = 0; i < count; ++i) {
      const CopyRegion region = regionAt(i);
      const EnginePart part = enginePart(region);
      copyRemainder(group, region, part);
      if (part.bytes > longest) longest = part.bytes;
    }
    if (group.rank() != 0) return complete_;
    arch::bulkFenceAll();  // after ordinary accesses that wrote the sources or acquired the destinations
    constexpr std::size_t quantum = static_cast<std::size_t>(config.quantum) * config.chunkBytes;
    for (std::size_t done = 0; done < longest; done += quantum) {
      for (int i = 0; i < count; ++i) {
        const CopyRegion region = regionAt(i);
        const EnginePart part = enginePart(region);
        if (done >= part.bytes) continue;
        const std::size_t left = part.bytes - done;
        const std::size_t at = part.begin + done;
        std::byte* const to = static_cast<std::byte*>(region.dst) + at;
        push(
            static_cast<const std::byte*>(region.src) + at, left < quantum ? left : quantum,
            [&](Target& target, std::size_t offset) {
              target.addresses[0] = to + offset;
              target.count = 1;
            },
            wait);
      }
    }
    return complete_;
  }

  /// Queues copies of the same source to several destinations, at most config.destinations. forEachDestination(f) calls
  /// f(dst) for each, the same ones whenever it is called: for the whole copy, and for each chunk. The engine loads a
  /// chunk once and stores it to every destination that is congruent to src modulo 16; the group copies the other
  /// destinations, and the few bytes before and after.
  template <ThreadGroup Group, class ForEachDestination, WaitPolicy Wait>
  MSCCLPP_INLINE bool copyToEach(const Group& group, const ForEachDestination& forEachDestination, const void* src,
                                 std::size_t bytes, Wait& wait) {
    EnginePart part{0, 0};
    forEachDestination([&](void* dst) {
      const CopyRegion region{dst, src, bytes};
      const EnginePart ofThis = enginePart(region);
      copyRemainder(group, region, ofThis);
      if (ofThis.bytes > 0) part = ofThis;  // it follows from src alone
    });
    if (group.rank() != 0) return complete_;
    arch::bulkFenceAll();  // as in copyRoundRobin()
    push(
        static_cast<const std::byte*>(src) + part.begin, part.bytes,
        [&](Target& target, std::size_t offset) {
          std::uint32_t count = 0;
          forEachDestination([&](void* dst) {
            if (areCongruent(dst, src)) target.addresses[count++] = static_cast<std::byte*>(dst) + part.begin + offset;
          });
          target.count = count;
        },
        wait);
    return complete_;
  }

  /// Whether the engine can copy between two addresses: they are congruent modulo 16.
  static MSCCLPP_INLINE bool areCongruent(const void* dst, const void* src) {
    // 32 bits suffice for the alignment, and the issuing thread has few instructions to spare per chunk.
    return ((lowBits(dst) ^ lowBits(src)) & 15u) == 0;
  }

  /// Waits until all queued copies have completed. The queue may be used again.
  template <ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool flush(const Group& group, Wait& wait) {
    if (group.rank() != 0) return complete_;
    while (inFlight_ > 0) storeOldest(wait);
    bulkStoreWait();
    return complete_;
  }

  /// The same, and ends the use of the scratch, which may serve another purpose after a sync of the group.
  template <ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool finish(const Group& group, Wait& wait) {
    flush(group, wait);
    if (group.rank() == 0) {
      for (BulkBarrier& barrier : scratch_->loaded) barrier.invalidate();
    }
    return complete_;
  }

 private:
  using Target = typename Scratch::Target;

  static MSCCLPP_INLINE std::uint32_t lowBits(const void* address) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address));
  }

  /// An index in the ring, and the parity of its wrap-arounds.
  struct Cursor {
    int index;
    std::uint32_t phase;
    MSCCLPP_INLINE void advance() {
      if (++index == config.chunks) {
        index = 0;
        phase ^= 1;
      }
    }
  };

  /// The part of a region that the engine copies.
  struct EnginePart {
    unsigned begin;
    std::size_t bytes;
  };
  static MSCCLPP_INLINE EnginePart enginePart(const CopyRegion& region) {
    const unsigned head = (0u - lowBits(region.src)) % 16;
    const bool aligned = areCongruent(region.dst, region.src) && region.bytes > head;
    return {head, aligned ? (region.bytes - head) & ~std::size_t{15} : 0};
  }

  /// Copies the rest, with all threads of the group.
  template <ThreadGroup Group>
  static MSCCLPP_INLINE void copyRemainder(const Group& group, const CopyRegion& region, const EnginePart& part) {
    if (part.bytes == 0) return mscclpp::copy(group, region.dst, region.src, region.bytes);
    auto* to = static_cast<std::byte*>(region.dst);
    const auto* from = static_cast<const std::byte*>(region.src);
    const auto step = static_cast<std::size_t>(group.size());
    for (auto i = static_cast<std::size_t>(group.rank()); i < region.bytes - part.bytes; i += step) {
      const std::size_t at = i < part.begin ? i : i + part.bytes;
      to[at] = from[at];
    }
  }

  /// Loads `bytes` bytes chunk by chunk. setTarget(target, offset) sets the destinations of the chunk at that offset.
  template <class SetTarget, class Wait>
  MSCCLPP_INLINE void push(const std::byte* from, std::size_t bytes, const SetTarget& setTarget, Wait& wait) {
    for (std::size_t done = 0; done < bytes; done += config.chunkBytes) {
      const std::size_t left = bytes - done;
      const auto size = static_cast<std::uint32_t>(left < config.chunkBytes ? left : config.chunkBytes);
      // This chunk's last store was committed `chunks - prefetchDepth` groups ago.
      bulkStoreWaitSource<config.chunks - config.prefetchDepth - 1>();
      Target& target = scratch_->targets[load_.index];
      setTarget(target, done);
      target.bytes = size;
      scratch_->loaded[load_.index].arriveAndExpect(size);
      bulkLoad(scratch_->chunks[load_.index].data, from + done, size, scratch_->loaded[load_.index]);
      load_.advance();
      if (++inFlight_ > config.prefetchDepth) storeOldest(wait);
    }
  }

  template <class Wait>
  MSCCLPP_INLINE void storeOldest(Wait& wait) {
    const int i = store_.index;
    std::uint32_t phase = store_.phase;
    const Target& target = scratch_->targets[i];
    if (scratch_->loaded[i].wait(phase, wait)) {
      const std::uint32_t count = config.destinations == 1 ? 1 : target.count;
      for (std::uint32_t d = 0; d < count; ++d) {
        bulkStore(target.addresses[d], scratch_->chunks[i].data, target.bytes);
      }
    } else {
      complete_ = false;
    }
    bulkStoreCommit();
    store_.advance();
    --inFlight_;
  }

  Scratch* scratch_;
  Cursor load_;
  Cursor store_;
  int inFlight_;  ///< chunks being loaded
  bool complete_;
};

/// One copy through a BulkCopier, complete on return. Called by every thread of group, which must sync before other
/// threads read dst. The first thread's result is false if a wait failed.
template <BulkCopyConfig config, ThreadGroup Group, WaitPolicy Wait>
MSCCLPP_INLINE bool bulkCopy(const Group& group, BulkScratch<config>& scratch, void* dst, const void* src,
                             std::size_t bytes, Wait& wait) {
  BulkCopier<config> copier(group, scratch);
  copier.copy(group, dst, src, bytes, wait);
  return copier.finish(group, wait);
}

}  // namespace mscclpp
