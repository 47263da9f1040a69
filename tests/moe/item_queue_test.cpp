// The items of blocks and of warps: each is taken once.
#include "mscclpp/moe/item_queue.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "mscclpp/emulation/launch.hpp"

using namespace mscclpp;

namespace {

/// How often each item below `items` is taken by three blocks of four warps.
std::vector<std::uint32_t> takeAll(std::uint32_t items, bool ofBlocks) {
  constexpr std::uint32_t blocks = 3, warps = 4;
  std::vector<std::uint32_t> counters(blocks), taken(items);
  emulation::launch<4>({.blocks = blocks, .threads = 4 * warps}, [&](int, const auto& grid) {
    const auto block = static_cast<std::uint32_t>(grid.blockIndex());
    const auto warp = static_cast<std::uint32_t>(grid.warpIndex());
    moe::ItemQueue queue{nullptr, warp * blocks + block, warps * blocks};
    if (ofBlocks) queue = {&counters[block], block, blocks};
    while (true) {
      const std::uint32_t item = queue.next(grid.warp());
      if (item >= items) break;
      if (grid.warp().rank() == 3) ++taken[item];  // every lane knows it
    }
  });
  return taken;
}

}  // namespace

TEST_CASE("item queue: the items of a warp") {
  for (const std::uint32_t items : {0u, 1u, 11u, 12u, 100u}) CHECK(takeAll(items, false) == std::vector(items, 1u));
}
TEST_CASE("item queue: the items of a block, which its warps take one after the other") {
  for (const std::uint32_t items : {0u, 1u, 11u, 12u, 100u}) CHECK(takeAll(items, true) == std::vector(items, 1u));
}
