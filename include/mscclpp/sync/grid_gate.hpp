// A gate that the first blocks of a launch open together, for all of its blocks.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// In device memory, zero-initialised. Unlike a GridBarrier it does not wait for the blocks that have no part in what
/// the others do: they may come late. All blocks that open it are resident at once.
struct GridGate {
  std::uint32_t arrived;
  std::uint32_t unused;
  std::uint64_t opened;  ///< the last number it was opened with

  /// Waits until the first `openers` blocks of the grid, 1 or more, have called it with the same number, which is
  /// greater than those before (within 2^63). Called by all threads of each block, with the same arguments. Acquire and
  /// release: what the threads of the openers wrote before is visible to all threads afterwards. Returns false if the
  /// wait failed.
  template <class GridType, WaitPolicy Wait>
  MSCCLPP_INLINE bool pass(const GridType& grid, std::uint32_t openers, std::uint64_t number, Wait& wait) {
    using namespace arch;
    bool passed = true;
    const auto block = grid.block();
    block.sync();
    if (block.rank() == 0) {
      const auto index = static_cast<std::uint32_t>(grid.blockIndex());
      if (index < openers && fetchAdd<Order::AcqRel, Scope::Device>(&arrived, 1u) == openers - 1) {
        store<Order::Relaxed, Scope::Device>(&arrived, 0u);
        store<Order::Release, Scope::Device>(&opened, number);
      } else {
        passed = wait.until(WaitSite{WaitOperation::GridBarrier, -1, -1, index, number}, [&](std::uint64_t& seen) {
          seen = load<Order::Acquire, Scope::Device>(&opened);
          return static_cast<std::int64_t>(seen - number) >= 0;
        });
      }
    }
    block.sync();
    return passed;
  }
};

}  // namespace mscclpp
