// The threads of a row: some warps of a block that hold a row of a matrix in registers, and reductions over the row
// whose result does not depend on how many threads they are.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/quantise.hpp"

namespace mscclpp {

/// The bytes of shared memory that a block needs for rows of which a thread holds up to `packsPerThread` packs.
MSCCLPP_HOST_DEVICE constexpr std::size_t rowThreadsBytes(int packsPerThread, int blockThreads, int warpWidth) {
  const int warps = (blockThreads + warpWidth - 1) / warpWidth;
  return 2 * sizeof(std::uint32_t) * static_cast<std::size_t>(packsPerThread * warps);
}

/// The distribution of rows of `rowPacks` packs over the warps of a grid. A row is held by as many warps as have a pack
/// of it, at most those of a block; the others of the block hold other rows at the same time. Thread t of a row's
/// threads holds packs t, t + threads(), ..., at most n of them. Without shared memory a row is held by one warp.
///
/// The functions sum() and max() are called by all threads of the block together, also by those without a row.
template <int n, Grid GridType>
class RowThreads {
  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
  using Warp = decltype(someGrid().warp());

 public:
  static constexpr int width = Warp::width;
  /// A warp of one lane is a CPU thread, which holds whole rows.
  static constexpr bool hasSharedMemory = SharedMemoryGrid<GridType> && width > 1;

  /// Whether the threads can hold a row.
  static MSCCLPP_INLINE bool canHold(const GridType& grid, std::uint32_t rowPacks) {
    const int warps = hasSharedMemory ? grid.warpCount() : 1;
    return rowPacks <= static_cast<std::uint32_t>(warps * width * n);
  }

  /// canHold() is true.
  MSCCLPP_INLINE RowThreads(const GridType& grid, std::uint32_t rowPacks)
      : grid_(grid), warp_(grid.warp()), chunks_((rowPacks + width - 1) / width) {
    const auto warps = static_cast<std::uint32_t>(grid.warpCount());
    warpsPerRow_ = !hasSharedMemory ? 1 : chunks_ < warps ? chunks_ : warps;
    const auto index = static_cast<std::uint32_t>(grid.warpIndex());
    if (warpsPerRow_ == warps) {  // the usual case, without divisions
      rowsAtOnce_ = 1;
      place_ = 0;
      warpInRow_ = index;
    } else {
      rowsAtOnce_ = warps / warpsPerRow_;
      place_ = index / warpsPerRow_;
      warpInRow_ = index % warpsPerRow_;
    }
  }

  /// Rows that the grid holds at the same time.
  MSCCLPP_INLINE std::uint32_t stride() const { return rowsAtOnce_ * static_cast<std::uint32_t>(grid_.blockCount()); }
  /// The first of the block's rows, which its first warps hold.
  MSCCLPP_INLINE std::uint32_t firstOfBlock() const { return static_cast<std::uint32_t>(grid_.blockIndex()); }
  /// The first of the thread's rows: the next ones follow by stride(). Consecutive rows go to different blocks.
  /// 2^31 for threads that hold none.
  MSCCLPP_INLINE std::uint32_t first() const {
    return holdsRows() ? place_ * static_cast<std::uint32_t>(grid_.blockCount()) + firstOfBlock() : 1u << 31;
  }
  /// The thread's index among those of its row.
  MSCCLPP_INLINE std::uint32_t rank() const { return warpInRow_ * width + static_cast<std::uint32_t>(warp_.rank()); }
  MSCCLPP_INLINE std::uint32_t threads() const { return warpsPerRow_ * width; }
  MSCCLPP_INLINE const Warp& warp() const { return warp_; }
  /// The i-th pack of the thread; the row may have fewer.
  MSCCLPP_INLINE std::uint32_t pack(int i) const { return rank() + static_cast<std::uint32_t>(i) * threads(); }

  /// The sum over the row of a value for each pack, zero where there is none. Added in an order that depends on the
  /// number of packs and the width of a warp only: the lanes' of each `width` consecutive packs, then those sums.
  MSCCLPP_INLINE float sum(const float (&values)[n]) {
    float sums[n];
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) sums[i] = chunk(i) < chunks_ ? addOverLanes(values[i]) : 0.0f;
    float total = 0.0f;
    if (warpsPerRow_ == 1) {
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        if (i % width == warp_.rank()) total += sums[i];
      }
    } else {
      std::uint32_t* const words = nextWords();
      if (warp_.rank() == 0 && holdsRows()) {
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) {
          if (chunk(i) < chunks_) words[chunk(i)] = arch::bitCast<std::uint32_t>(sums[i]);
        }
      }
      grid_.block().sync();
      MSCCLPP_NO_UNROLL  // once or twice
          for (std::uint32_t c = static_cast<std::uint32_t>(warp_.rank()); c < chunks_; c += width) {
        total += arch::bitCast<float>(words[c]);
      }
    }
    return addOverLanes(total);
  }

  /// The maximum over the row of one value for each thread.
  MSCCLPP_INLINE std::uint32_t max(std::uint32_t value) {
    value = maxOverLanes<width>(warp_, value);
    if (warpsPerRow_ == 1) return value;
    std::uint32_t* const words = nextWords();
    if (warp_.rank() == 0 && holdsRows()) words[warpInRow_] = value;
    grid_.block().sync();
    value = 0;
    MSCCLPP_NO_UNROLL
    for (std::uint32_t warp = static_cast<std::uint32_t>(warp_.rank()); warp < warpsPerRow_; warp += width) {
      value = quantise::larger(value, words[warp]);
    }
    return maxOverLanes<width>(warp_, value);
  }

 private:
  /// False for the warps that are too few to hold one more row.
  MSCCLPP_INLINE bool holdsRows() const { return place_ < rowsAtOnce_; }
  /// The chunk of `width` packs of a row to which the warp's i-th packs belong.
  MSCCLPP_INLINE std::uint32_t chunk(int i) const { return static_cast<std::uint32_t>(i) * warpsPerRow_ + warpInRow_; }
  /// The same bits in all lanes, since an addition does not depend on the order of its two operands.
  MSCCLPP_INLINE float addOverLanes(float value) const {
    MSCCLPP_UNROLL
    for (int distance = 1; distance < width; distance *= 2) {
      value += arch::bitCast<float>(warp_.shuffle(arch::bitCast<std::uint32_t>(value), warp_.rank() ^ distance));
    }
    return value;
  }
  /// The words of the row in shared memory, one for each chunk, in two sets that alternate: all threads have read a set
  /// once they have passed the barrier of the other.
  MSCCLPP_INLINE std::uint32_t* nextWords() {
    if constexpr (hasSharedMemory) {
      exchange_ ^= 1u;
      const std::uint32_t place = holdsRows() ? place_ : 0;
      const std::uint32_t words = warpsPerRow_ * n;
      return reinterpret_cast<std::uint32_t*>(grid_.sharedMemory()) + (exchange_ * rowsAtOnce_ + place) * words;
    } else {
      return nullptr;
    }
  }

  const GridType& grid_;
  const Warp warp_;
  std::uint32_t chunks_;  ///< of `width` packs of a row
  std::uint32_t warpsPerRow_;
  std::uint32_t rowsAtOnce_;  ///< of a block
  std::uint32_t place_;       ///< of the thread's row among those
  std::uint32_t warpInRow_;
  std::uint32_t exchange_ = 0;
};

}  // namespace mscclpp
