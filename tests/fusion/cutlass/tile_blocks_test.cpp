// The numbering of rows of tiles as blocks of an exchange, and the order in which a rank computes them.
#include "mscclpp/fusion/cutlass/tile_blocks.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace mscclpp;

namespace {

template <RowDelivery delivery>
void checkNumbering() {
  using Blocks = TileBlocks<delivery, CyclicOwners>;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (std::uint32_t tiles = 1; tiles <= 13; ++tiles) {
      CAPTURE(ranks);
      CAPTURE(tiles);
      const Blocks blocks{tiles, ranks};
      CHECK(blocks.firstOf(ranks) == tiles);
      int before = 0;
      for (std::uint32_t tile = 0; tile < tiles; ++tile) {
        const std::uint32_t block = blocks.blockOf(tile);
        CHECK(block < tiles);
        CHECK(blocks.tileOf(block) == tile);
        for (int rank = 0; rank < ranks; ++rank) {
          if (delivery != RowDelivery::Redundant && CyclicOwners::owner(block, ranks) != rank) continue;
          CHECK(blocks.tileIn(blocks.slotOf(tile), rank) == tile);
        }
        if constexpr (delivery == RowDelivery::ToOwner) {
          const int owner = CyclicOwners::owner(block, ranks);
          CHECK(owner >= before);
          CHECK((tile >= blocks.firstOf(owner) && tile < blocks.firstOf(owner + 1)));
          before = owner;
        }
      }
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<bool> seen(tiles, false);
        int distanceBefore = 0;
        for (std::uint32_t i = 0; i < tiles; ++i) {
          const std::uint32_t tile = blocks.inOrder(i, rank);
          REQUIRE(tile < tiles);
          CHECK(!seen[tile]);
          seen[tile] = true;
          const int distance = (CyclicOwners::owner(blocks.blockOf(tile), ranks) - rank - 1 + 2 * ranks) % ranks;
          CHECK(distance >= distanceBefore);
          distanceBefore = distance;
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("tile blocks: each row of tiles is one block, remote ones come first") {
  checkNumbering<RowDelivery::ToOwner>();
  checkNumbering<RowDelivery::ToAll>();
  checkNumbering<RowDelivery::Redundant>();
}
