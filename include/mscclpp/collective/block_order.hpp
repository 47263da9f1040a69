// Orders in which a rank computes blocks of rows that concern its peers.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The i-th of `blocks` blocks of rows in an order that begins with those that the next rank owns and ends with this
/// rank's own: what travels farthest is computed first, and the ranks do not write to the same peer at the same time.
/// Owners: as CyclicOwners (collective/row_scratch.hpp).
template <class Owners>
MSCCLPP_HOST_DEVICE inline std::size_t remoteBlockFirst(std::size_t i, std::size_t blocks, int rank, int ranks) {
  for (int step = 1; step < ranks; ++step) {
    const int owner = (rank + step) % ranks;
    const std::size_t count = Owners::count(blocks, owner, ranks);
    if (i < count) return Owners::block(owner, i, ranks);
    i -= count;
  }
  return Owners::block(rank, i, ranks);
}

/// The i-th of `blocks` blocks of rows, of which each rank holds an equal share in rank order, in an order that begins
/// with the first block in which this rank has rows: what is at hand is used first, and the rows of rank + 1, rank + 2,
/// ... follow. rows: all rows, rank r has those from rows * r / ranks on.
MSCCLPP_HOST_DEVICE inline std::size_t ownBlockFirst(std::size_t i, std::size_t blocks, std::size_t rows,
                                                     std::size_t rowsPerBlock, int rank, int ranks) {
  const std::size_t first = rows / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(rank) / rowsPerBlock;
  const std::size_t block = first + i;
  return block < blocks ? block : block - blocks;
}

}  // namespace mscclpp
