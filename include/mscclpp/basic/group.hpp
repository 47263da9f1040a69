// Groups of GPU threads. No other header reads threadIdx, blockIdx, blockDim or gridDim.
#pragma once

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/warp.hpp"
#include "mscclpp/basic/barrier_ids.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A group of one thread, for calls that a single thread makes. For both backends.
struct ThisThread {
  MSCCLPP_INLINE int rank() const { return 0; }
  MSCCLPP_INLINE int size() const { return 1; }
  MSCCLPP_INLINE void sync() const {}
  MSCCLPP_INLINE bool all(bool predicate) const { return predicate; }
  MSCCLPP_INLINE bool any(bool predicate) const { return predicate; }
};
static_assert(ThreadGroup<ThisThread>);

/// A group made of MSCCL++'s arguments (threadId, numThreads), for calls that do not sync: sync() does nothing.
class ThreadRange {
 public:
  MSCCLPP_INLINE ThreadRange(std::uint32_t rank, std::uint32_t size)
      : rank_(static_cast<int>(rank)), size_(static_cast<int>(size)) {}
  MSCCLPP_INLINE int rank() const { return rank_; }
  MSCCLPP_INLINE int size() const { return size_; }
  MSCCLPP_INLINE void sync() const {}

 private:
  int rank_;
  int size_;
};

#if defined(__CUDACC__)

namespace gpu {

/// This thread's index in its block, over all three dimensions. Unsigned, so that a division by 32 is a shift.
MSCCLPP_DEVICE __forceinline__ unsigned threadInBlock() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
/// Number of threads of the block.
MSCCLPP_DEVICE __forceinline__ unsigned blockThreads() {
  return blockDim.x * blockDim.y * blockDim.z;
}

/// Width consecutive lanes of a warp, the first a multiple of Width; a whole warp by default.
template <int Width = 32>
struct WarpTile {
  static_assert(Width > 0 && Width <= 32 && (Width & (Width - 1)) == 0,
                "the width of a tile must be a power of two, at most 32");
  static constexpr int width = Width;
  static constexpr bool lockstepStores = Width == 32;

  MSCCLPP_DEVICE __forceinline__ int rank() const { return static_cast<int>(threadInBlock() % Width); }
  MSCCLPP_DEVICE __forceinline__ int size() const { return Width; }
  MSCCLPP_DEVICE __forceinline__ void sync() const { arch::warpSync(mask()); }
  MSCCLPP_DEVICE __forceinline__ std::uint32_t shuffle(std::uint32_t value, int source) const {
    return arch::warpShuffle(mask(), value, source, Width);
  }
  MSCCLPP_DEVICE __forceinline__ bool all(bool predicate) const { return arch::warpAll(mask(), predicate); }
  MSCCLPP_DEVICE __forceinline__ bool any(bool predicate) const { return arch::warpAny(mask(), predicate); }
  MSCCLPP_DEVICE __forceinline__ std::uint32_t ballot(bool predicate) const {
    const std::uint32_t lanes = arch::warpBallot(mask(), predicate);
    if constexpr (Width == 32) {
      return lanes;
    } else {
      return lanes >> (threadInBlock() % 32 / Width * Width);
    }
  }

 private:
  MSCCLPP_DEVICE __forceinline__ std::uint32_t mask() const {
    if constexpr (Width == 32) {
      return 0xffffffffu;
    } else {
      return ((1u << Width) - 1u) << (threadInBlock() % 32 / Width * Width);
    }
  }
};
static_assert(WarpGroup<WarpTile<>>);

/// Warps [first, first + count) of the block, which sync through named barrier `barrier` (1 to 15; a different one for
/// each range in use at the same time).
class WarpRange {
 public:
  MSCCLPP_DEVICE __forceinline__ WarpRange(int first, int count, int barrier)
      : first_(first), count_(count), barrier_(barrier) {}
  MSCCLPP_DEVICE __forceinline__ int rank() const { return static_cast<int>(threadInBlock()) - first_ * 32; }
  MSCCLPP_DEVICE __forceinline__ int size() const { return count_ * 32; }
  MSCCLPP_DEVICE __forceinline__ void sync() const { arch::namedBarrierSync(barrier_, count_ * 32); }
  MSCCLPP_DEVICE __forceinline__ bool syncAny(bool vote) const {
    return arch::namedBarrierSyncAny(barrier_, count_ * 32, vote);
  }

 private:
  int first_;
  int count_;
  int barrier_;
};
static_assert(VotingGroup<WarpRange>);

/// All threads of the block.
struct Block {
  MSCCLPP_DEVICE __forceinline__ int rank() const { return static_cast<int>(threadInBlock()); }
  MSCCLPP_DEVICE __forceinline__ int size() const { return static_cast<int>(blockThreads()); }
  MSCCLPP_DEVICE __forceinline__ void sync() const { arch::blockSync(); }
  MSCCLPP_DEVICE __forceinline__ bool syncAny(bool vote) const { return arch::blockSyncAny(vote); }
};
static_assert(VotingGroup<Block>);

/// Index of this block in the launch, over all three dimensions.
MSCCLPP_DEVICE __forceinline__ int blockInLaunch() {
  return static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
}
/// Number of blocks of the launch.
MSCCLPP_DEVICE __forceinline__ int launchBlocks() {
  return static_cast<int>(gridDim.x * gridDim.y * gridDim.z);
}

/// What a block that takes part in a grid as a whole offers, whatever the numbering of the blocks.
class WholeBlock {
 public:
  MSCCLPP_DEVICE __forceinline__ Block block() const { return {}; }
  MSCCLPP_DEVICE __forceinline__ WarpTile<> warp() const { return {}; }
  MSCCLPP_DEVICE __forceinline__ int warpIndex() const { return static_cast<int>(threadInBlock() / 32); }
  MSCCLPP_DEVICE __forceinline__ int warpCount() const { return static_cast<int>(blockThreads() / 32); }
  /// The dynamic shared memory of the launch.
  MSCCLPP_DEVICE __forceinline__ std::byte* sharedMemory() const { return arch::dynamicSharedMemory(); }

  // The last warp of the block is the control warp, the others are workers (concept WarpSpecializedGrid).
  MSCCLPP_DEVICE __forceinline__ bool isControlWarp() const { return warpIndex() == warpCount() - 1; }
  MSCCLPP_DEVICE __forceinline__ WarpRange workers() const { return {0, warpCount() - 1, barriers_.workers()}; }
  MSCCLPP_DEVICE __forceinline__ void namedBarrierArrive(int barrier) const {
    arch::namedBarrierArrive(barriers_.specialized(barrier), static_cast<int>(blockThreads()));
  }
  MSCCLPP_DEVICE __forceinline__ void namedBarrierWait(int barrier) const {
    arch::namedBarrierSync(barriers_.specialized(barrier), static_cast<int>(blockThreads()));
  }

 protected:
  MSCCLPP_DEVICE __forceinline__ explicit WholeBlock(BarrierIds barriers) : barriers_(barriers) {}

 private:
  BarrierIds barriers_;
};

/// Warps [firstWarp, firstWarp + warpCount) of some blocks: a user's kernel passes such a part to a collective and uses
/// the other warps itself, as in a GEMM with an epilogue. Made by Grid::warps(). Only threads for which isMember()
/// holds use the other functions. block() is the span of warps; the last of them is the control warp.
///
/// Not a SharedMemoryGrid: which part of the block's shared memory is free, only the kernel knows.
class WarpGrid {
 public:
  MSCCLPP_DEVICE __forceinline__ WarpGrid(int blockIndex, int blockCount, int firstWarp, int warpCount,
                                          BarrierIds barriers)
      : blockIndex_(blockIndex),
        blockCount_(blockCount),
        firstWarp_(firstWarp),
        warpCount_(warpCount),
        barriers_(barriers) {}
  /// Whether the calling thread is in one of the warps, and its block one of the blocks.
  MSCCLPP_DEVICE __forceinline__ bool isMember() const {
    return blockIndex_ >= 0 && blockIndex_ < blockCount_ && warpIndex() >= 0 && warpIndex() < warpCount_;
  }
  MSCCLPP_DEVICE __forceinline__ int blockIndex() const { return blockIndex_; }
  MSCCLPP_DEVICE __forceinline__ int blockCount() const { return blockCount_; }
  MSCCLPP_DEVICE __forceinline__ WarpRange block() const { return {firstWarp_, warpCount_, barriers_.span()}; }
  MSCCLPP_DEVICE __forceinline__ WarpTile<> warp() const { return {}; }
  MSCCLPP_DEVICE __forceinline__ int warpIndex() const { return static_cast<int>(threadInBlock() / 32) - firstWarp_; }
  MSCCLPP_DEVICE __forceinline__ int warpCount() const { return warpCount_; }

  MSCCLPP_DEVICE __forceinline__ bool isControlWarp() const { return warpIndex() == warpCount_ - 1; }
  MSCCLPP_DEVICE __forceinline__ WarpRange workers() const { return {firstWarp_, warpCount_ - 1, barriers_.workers()}; }
  MSCCLPP_DEVICE __forceinline__ void namedBarrierArrive(int barrier) const {
    arch::namedBarrierArrive(barriers_.specialized(barrier), warpCount_ * 32);
  }
  MSCCLPP_DEVICE __forceinline__ void namedBarrierWait(int barrier) const {
    arch::namedBarrierSync(barriers_.specialized(barrier), warpCount_ * 32);
  }

 private:
  int blockIndex_;
  int blockCount_;
  int firstWarp_;
  int warpCount_;
  BarrierIds barriers_;
};
static_assert(mscclpp::Grid<WarpGrid> && WarpSpecializedGrid<WarpGrid>);

/// The blocks of a launch that is known to have one dimension, such as launch()'s of kernel.cuh: Grid without the
/// instructions that number the blocks of several dimensions.
class LinearGrid : public WholeBlock {
 public:
  MSCCLPP_DEVICE __forceinline__ explicit LinearGrid(BarrierIds barriers = {}) : WholeBlock(barriers) {}
  MSCCLPP_DEVICE __forceinline__ int blockIndex() const { return static_cast<int>(blockIdx.x); }
  MSCCLPP_DEVICE __forceinline__ int blockCount() const { return static_cast<int>(gridDim.x); }
  /// Warps [first, first + count) of each block, with barriers of their own.
  MSCCLPP_DEVICE __forceinline__ WarpGrid warps(int first, int count, BarrierIds barriers = {}) const {
    return {blockIndex(), blockCount(), first, count, barriers};
  }
};
static_assert(mscclpp::Grid<LinearGrid> && WarpSpecializedGrid<LinearGrid> && SharedMemoryGrid<LinearGrid>);

/// The blocks of this launch, of any number of dimensions (numbered along x, then y, then z), or `count` of them from
/// block `first`: a user's kernel passes such a part to a collective and uses the others itself. barriers: only for
/// kernels that use some of the default ones themselves.
class Grid : public WholeBlock {
 public:
  MSCCLPP_DEVICE __forceinline__ explicit Grid(BarrierIds barriers = {}) : Grid(0, launchBlocks(), barriers) {}
  MSCCLPP_DEVICE __forceinline__ Grid(int first, int count, BarrierIds barriers = {})
      : WholeBlock(barriers), first_(first), count_(count) {}
  /// Whether the calling thread's block is one of the blocks.
  MSCCLPP_DEVICE __forceinline__ bool isMember() const { return blockIndex() >= 0 && blockIndex() < count_; }
  MSCCLPP_DEVICE __forceinline__ int blockIndex() const { return blockInLaunch() - first_; }
  MSCCLPP_DEVICE __forceinline__ int blockCount() const { return count_; }
  /// Warps [first, first + count) of each of these blocks, with barriers of their own.
  MSCCLPP_DEVICE __forceinline__ WarpGrid warps(int first, int count, BarrierIds barriers = {}) const {
    return {blockIndex(), count_, first, count, barriers};
  }

 private:
  int first_;
  int count_;
};
static_assert(mscclpp::Grid<Grid> && WarpSpecializedGrid<Grid> && SharedMemoryGrid<Grid>);

}  // namespace gpu

#endif  // __CUDACC__

}  // namespace mscclpp
