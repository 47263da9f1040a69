// Barrier of the blocks of one launch on one GPU, all of which must be resident at once.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// In device memory, zero-initialised. One grid at a time; the number of blocks may differ between uses. The last block
/// to arrive sets the count to 0 and advances the generation, so the words need no reset.
struct GridBarrier {
  std::uint32_t arrived;
  std::uint32_t generation;

  /// Waits until every block of grid has called it. Called by all threads of each block. Acquire and release: what the
  /// threads wrote before is visible to all of them afterwards. Returns false if the wait failed.
  template <class GridType, WaitPolicy Wait>
  MSCCLPP_INLINE bool sync(const GridType& grid, Wait& wait) {
    return sync(grid, static_cast<std::uint32_t>(grid.blockCount()), wait);
  }
  /// The same of `blocks` blocks of the grid, which call it.
  template <class GridType, WaitPolicy Wait>
  MSCCLPP_INLINE bool sync(const GridType& grid, std::uint32_t blocks, Wait& wait) {
    using namespace arch;
    bool passed = true;
    const auto block = grid.block();
    block.sync();
    if (block.rank() == 0) {
      const std::uint32_t before = load<Order::Relaxed, Scope::Device>(&generation);
      if (fetchAdd<Order::AcqRel, Scope::Device>(&arrived, 1u) == blocks - 1) {
        store<Order::Relaxed, Scope::Device>(&arrived, 0u);
        store<Order::Release, Scope::Device>(&generation, before + 1);
      } else {
        const auto index = static_cast<std::uint32_t>(grid.blockIndex());
        passed = wait.until(WaitSite{WaitOperation::GridBarrier, -1, -1, index, before + 1}, [&](std::uint64_t& seen) {
          seen = load<Order::Acquire, Scope::Device>(&generation);
          return seen != before;
        });
      }
    }
    block.sync();
    return passed;
  }
};

}  // namespace mscclpp
