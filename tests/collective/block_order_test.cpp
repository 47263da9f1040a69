// Orders of blocks of rows: each block comes once, and in the order of the ranks that it concerns.
#include "mscclpp/collective/block_order.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "mscclpp/collective/row_scratch.hpp"

using namespace mscclpp;

namespace {

/// Calls at(i) for i < count, and returns whether the results are 0 to count - 1 in some order.
template <class At>
bool isPermutation(std::size_t count, const At& at) {
  std::vector<bool> seen(count, false);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t block = at(i);
    if (block >= count || seen[block]) return false;
    seen[block] = true;
  }
  return true;
}

}  // namespace

TEST_CASE("block order: blocks of the next rank first, the rank's own last") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t blocks = 1; blocks <= 13; ++blocks) {
        CAPTURE(ranks);
        CAPTURE(rank);
        CAPTURE(blocks);
        const auto at = [&](std::size_t i) { return remoteBlockFirst<CyclicOwners>(i, blocks, rank, ranks); };
        REQUIRE(isPermutation(blocks, at));
        // How far the owner is after this rank never decreases; this rank itself is the farthest.
        int before = 0;
        for (std::size_t i = 0; i < blocks; ++i) {
          const int distance = (CyclicOwners::owner(at(i), ranks) - rank - 1 + 2 * ranks) % ranks;
          CHECK(distance >= before);
          before = distance;
        }
      }
    }
  }
}

TEST_CASE("block order: the rank's own rows first, then those of the rank before it") {
  constexpr std::size_t rowsPerBlock = 8;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t rows = 1; rows <= 100; ++rows) {
        CAPTURE(ranks);
        CAPTURE(rank);
        CAPTURE(rows);
        const std::size_t slice = ceilDivide(rows, static_cast<std::size_t>(ranks));
        const std::size_t blocks = ceilDivide(rows, rowsPerBlock);
        const auto at = [&](std::size_t i) { return gatheredBlock(i, blocks, slice, rowsPerBlock, rank, ranks); };
        REQUIRE(isPermutation(blocks, at));
        int before = 0;
        for (std::size_t i = 0; i < blocks; ++i) {
          const int from = static_cast<int>(at(i) * rowsPerBlock / slice);
          const int distance = (rank - from + ranks) % ranks;
          CHECK(distance >= before);
          before = distance;
        }
      }
    }
  }
}
