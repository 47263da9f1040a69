// Groups of GPU threads. No other header reads threadIdx, blockIdx, blockDim or gridDim.
#pragma once

#include "mscclpp/arch/barrier.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/warp.hpp"
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

 private:
  int first_;
  int count_;
  int barrier_;
};
static_assert(ThreadGroup<WarpRange>);

/// All threads of the block.
struct Block {
  MSCCLPP_DEVICE __forceinline__ int rank() const { return static_cast<int>(threadInBlock()); }
  MSCCLPP_DEVICE __forceinline__ int size() const { return static_cast<int>(blockThreads()); }
  MSCCLPP_DEVICE __forceinline__ void sync() const { arch::blockSync(); }
};
static_assert(ThreadGroup<Block>);

/// The blocks of this launch along x, or `count` of them from block `first`: a user's kernel passes such a part to a
/// collective and uses the others itself.
class Grid {
 public:
  MSCCLPP_DEVICE __forceinline__ Grid() : first_(0), count_(static_cast<int>(gridDim.x)) {}
  MSCCLPP_DEVICE __forceinline__ Grid(int first, int count) : first_(first), count_(count) {}
  MSCCLPP_DEVICE __forceinline__ int blockIndex() const { return static_cast<int>(blockIdx.x) - first_; }
  MSCCLPP_DEVICE __forceinline__ int blockCount() const { return count_; }
  MSCCLPP_DEVICE __forceinline__ Block block() const { return {}; }
  MSCCLPP_DEVICE __forceinline__ WarpTile<> warp() const { return {}; }
  MSCCLPP_DEVICE __forceinline__ int warpIndex() const { return static_cast<int>(threadInBlock() / 32); }
  MSCCLPP_DEVICE __forceinline__ int warpCount() const { return static_cast<int>(blockThreads() / 32); }
  /// The dynamic shared memory of the launch.
  MSCCLPP_DEVICE __forceinline__ std::byte* sharedMemory() const { return arch::dynamicSharedMemory(); }

  // The last warp of the block is the control warp, the others are workers (concept WarpSpecializedGrid).
  MSCCLPP_DEVICE __forceinline__ bool isControlWarp() const { return warpIndex() == warpCount() - 1; }
  MSCCLPP_DEVICE __forceinline__ WarpRange workers() const { return {0, warpCount() - 1, 1}; }
  MSCCLPP_DEVICE __forceinline__ void namedBarrierArrive(int barrier) const {
    arch::namedBarrierArrive(firstSpecializedBarrier + barrier, static_cast<int>(blockThreads()));
  }
  MSCCLPP_DEVICE __forceinline__ void namedBarrierWait(int barrier) const {
    arch::namedBarrierSync(firstSpecializedBarrier + barrier, static_cast<int>(blockThreads()));
  }

 private:
  static constexpr int firstSpecializedBarrier = 2;  // barrier 0 is Block::sync()'s, 1 is workers().sync()'s

  int first_;
  int count_;
};
static_assert(mscclpp::Grid<Grid> && WarpSpecializedGrid<Grid> && SharedMemoryGrid<Grid>);

}  // namespace gpu

#endif  // __CUDACC__

}  // namespace mscclpp
