// The items of a block, which its warps take one after the other.
#pragma once

#include "mscclpp/arch/shared_word.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::moe {

/// Items first, first + stride, ... without an end, of a warp or, with a counter, of the warps of a block together:
/// items take unequal times, and a warp with fixed ones would end late. Whoever takes items ahead ends so many later.
/// Another item costs less than from a counter of the whole launch in device memory (forEachDynamicPart()).
struct ItemQueue {
  std::uint32_t* counter;  ///< in shared memory, zero at first, the same for the warps; null: the items are one warp's
  std::uint32_t first, stride;

  /// The next item. Called by all lanes.
  template <WarpGroup Warp>
  MSCCLPP_INLINE std::uint32_t next(const Warp& warp) {
    std::uint32_t item = first;
    if (counter == nullptr) {
      first += stride;
    } else {
      std::uint32_t taken = 0;
      if (warp.rank() == 0) taken = arch::fetchAddShared(counter, 1);
      item += warp.shuffle(taken, 0) * stride;
    }
    return item;
  }
};

}  // namespace mscclpp::moe
