// Copies by the bulk copy engine: one thread of a group keeps many pieces in flight through shared memory, while the others are free.
#pragma once

#include "mscclpp/arch/bulk.hpp"
#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// How bulk copies are cut: pieces of `bytes` bytes, `pieces` of them in flight, of which `ahead` are being loaded and the others stored. Copies that go
/// together take turns of `turn` pieces.
struct BulkShape {
  int bytes = 16 << 10;
  int pieces = 12;
  int ahead = 6;
  int turn = 1;
};

/// What one of several copies moves.
struct CopyRegion {
  void* dst;
  const void* src;
  std::size_t bytes;
};

/// Shared memory of one BulkCopier.
template <BulkShape shape = BulkShape{}>
struct BulkScratch {
  struct alignas(128) Piece {
    std::byte data[shape.bytes];
  };
  struct alignas(16) Target {
    std::byte* address;
    std::uint32_t bytes;
  };
  Piece pieces[shape.pieces];
  Target targets[shape.pieces];  ///< where each piece goes
  BulkBarrier loaded[shape.pieces];
};

/// A queue of copies, from global memory to global memory here or at peers, through a ring of pieces in shared memory. The group's first thread feeds the
/// engine; pieces of one copy follow those of the last without a gap. All threads of the group make every call together; nothing in it syncs the group. Each
/// warp of a block may have a queue of its own.
///
/// copy() and copyInTurns() only queue: sources stay as they are, and destinations are written, until flush() or finish(). After that the pattern is as for
/// copy() of basic/copy.hpp: group.sync(), then signal() by one thread. What other threads of the group wrote into a source, or learnt of a destination, needs
/// a group.sync() before the call. The first thread's result says whether all waits have ended well; that of the others is true.
template <BulkShape shape = BulkShape{}>
class BulkCopier {
 public:
  static_assert(shape.bytes > 0 && shape.bytes % 16 == 0 && shape.bytes < 1 << 20,
                "a piece is a multiple of 16 bytes, below 1 MiB");
  static_assert(shape.ahead > 0 && shape.ahead < shape.pieces, "ahead lies between 0 and pieces");
  static_assert(shape.turn > 0, "a turn is a piece at least");

  using Scratch = BulkScratch<shape>;

  /// scratch: shared memory that nobody else uses until after finish() and a sync of the group.
  template <ThreadGroup Group>
  MSCCLPP_INLINE BulkCopier(const Group& group, Scratch& scratch)
      : scratch_(&scratch), load_{0, 0}, store_{0, 0}, underWay_(0), complete_(true) {
    if (group.rank() != 0) return;
    for (BulkBarrier& barrier : scratch.loaded) barrier.relaxedInit();
    arch::mbarrierInitFence();
  }

  /// Queues a copy. Any size and alignment: the engine takes what lies between the first and the last multiple of 16 where dst and src are congruent modulo 16;
  /// the group copies the rest, and everything where they are not. The regions do not overlap those of other copies in the queue.
  template <ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool copy(const Group& group, void* dst, const void* src, std::size_t bytes, Wait& wait) {
    return copyInTurns(
        group, 1,
        [&](int) {
          return CopyRegion{dst, src, bytes};
        },
        wait);
  }

  /// Queues copies 0 to count - 1, each of them as by copy(), a turn of each after the other. For messages to several peers: with many bytes to one peer after
  /// the other, the blocks of all ranks meet at some peers while the links of others idle. regionAt(i) gives copy i; it is asked before each turn.
  template <ThreadGroup Group, class RegionAt, WaitPolicy Wait>
  MSCCLPP_INLINE bool copyInTurns(const Group& group, int count, const RegionAt& regionAt, Wait& wait) {
    std::size_t longest = 0;
    for (int i = 0; i < count; ++i) {
      const CopyRegion region = regionAt(i);
      const EnginePart part = enginePart(region);
      copyRest(group, region, part);
      if (part.bytes > longest) longest = part.bytes;
    }
    if (group.rank() != 0) return complete_;
    arch::bulkFenceAll();  // sources written, and destinations acquired, by ordinary accesses
    constexpr std::size_t turn = static_cast<std::size_t>(shape.turn) * shape.bytes;
    for (std::size_t done = 0; done < longest; done += turn) {
      for (int i = 0; i < count; ++i) {
        const CopyRegion region = regionAt(i);
        const EnginePart part = enginePart(region);
        if (done >= part.bytes) continue;
        const std::size_t left = part.bytes - done;
        const std::size_t at = part.begin + done;
        push(static_cast<std::byte*>(region.dst) + at, static_cast<const std::byte*>(region.src) + at,
             left < turn ? left : turn, wait);
      }
    }
    return complete_;
  }

  /// Waits until the engine has stored everything that was queued. The queue may be used again.
  template <ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool flush(const Group& group, Wait& wait) {
    if (group.rank() != 0) return complete_;
    while (underWay_ > 0) storeOldest(wait);
    bulkStoreWait();
    return complete_;
  }

  /// The same, and gives the scratch back.
  template <ThreadGroup Group, WaitPolicy Wait>
  MSCCLPP_INLINE bool finish(const Group& group, Wait& wait) {
    flush(group, wait);
    if (group.rank() == 0) {
      for (BulkBarrier& barrier : scratch_->loaded) barrier.invalidate();
    }
    return complete_;
  }

 private:
  /// A place in the ring, and the parity of the round.
  struct Cursor {
    int index;
    std::uint32_t phase;
    MSCCLPP_INLINE void advance() {
      if (++index == shape.pieces) {
        index = 0;
        phase ^= 1;
      }
    }
  };

  /// What the engine copies of a region.
  struct EnginePart {
    unsigned begin;
    std::size_t bytes;
  };
  static MSCCLPP_INLINE EnginePart enginePart(const CopyRegion& region) {
    // The low half of an address tells its alignment: a thread that feeds the engine has few instructions a piece.
    const auto dst = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(region.dst));
    const auto src = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(region.src));
    const unsigned head = (0u - dst) % 16;
    const bool aligned = (dst ^ src) % 16 == 0 && region.bytes > head;
    return {head, aligned ? (region.bytes - head) & ~std::size_t{15} : 0};
  }

  /// Copies what the engine leaves.
  template <ThreadGroup Group>
  static MSCCLPP_INLINE void copyRest(const Group& group, const CopyRegion& region, const EnginePart& part) {
    if (part.bytes == 0) return mscclpp::copy(group, region.dst, region.src, region.bytes);
    auto* to = static_cast<std::byte*>(region.dst);
    const auto* from = static_cast<const std::byte*>(region.src);
    const auto step = static_cast<std::size_t>(group.size());
    for (auto i = static_cast<std::size_t>(group.rank()); i < region.bytes - part.bytes; i += step) {
      const std::size_t at = i < part.begin ? i : i + part.bytes;
      to[at] = from[at];
    }
  }

  template <class Wait>
  MSCCLPP_INLINE void push(std::byte* to, const std::byte* from, std::size_t bytes, Wait& wait) {
    for (std::size_t done = 0; done < bytes; done += shape.bytes) {
      const std::size_t left = bytes - done;
      const auto size = static_cast<std::uint32_t>(left < shape.bytes ? left : shape.bytes);
      // The piece was stored `pieces` pieces ago, and `ahead` of those since are not stored yet.
      bulkStoreWaitSource<shape.pieces - shape.ahead - 1>();
      scratch_->targets[load_.index] = {to + done, size};
      scratch_->loaded[load_.index].arriveAndExpect(size);
      bulkLoad(scratch_->pieces[load_.index].data, from + done, size, scratch_->loaded[load_.index]);
      load_.advance();
      if (++underWay_ > shape.ahead) storeOldest(wait);
    }
  }

  template <class Wait>
  MSCCLPP_INLINE void storeOldest(Wait& wait) {
    const int i = store_.index;
    std::uint32_t phase = store_.phase;
    const auto target = scratch_->targets[i];
    if (scratch_->loaded[i].wait(phase, wait)) {
      bulkStore(target.address, scratch_->pieces[i].data, target.bytes);
    } else {
      complete_ = false;
    }
    bulkStoreCommit();
    store_.advance();
    --underWay_;
  }

  Scratch* scratch_;
  Cursor load_;
  Cursor store_;
  int underWay_;  ///< loads that have not become stores
  bool complete_;
};

/// One copy through a BulkCopier of its own, ended on return. Called by every thread of group, which syncs before others read dst. The first thread's result is
/// false if a wait gave up.
template <BulkShape shape, ThreadGroup Group, WaitPolicy Wait>
MSCCLPP_INLINE bool bulkCopy(const Group& group, BulkScratch<shape>& scratch, void* dst, const void* src,
                             std::size_t bytes, Wait& wait) {
  BulkCopier<shape> copier(group, scratch);
  copier.copy(group, dst, src, bytes, wait);
  return copier.finish(group, wait);
}

}  // namespace mscclpp
