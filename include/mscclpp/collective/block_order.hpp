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

/// The i-th of `blocks` blocks of rows of a matrix of which rank r has the rows from r * slice on, in the order in
/// which a row gather brings them: this rank's own, then those of the rank before it, which sends to this one first,
/// and so on. A block belongs to the rank that has its first row. Index: unsigned, of 32 bits where speed counts.
template <class Index>
MSCCLPP_HOST_DEVICE inline Index gatheredBlock(Index i, Index blocks, Index slice, Index rowsPerBlock, int rank,
                                               int ranks) {
  const auto firstOf = [&](int r) {
    const Index first = (static_cast<Index>(r) * slice + rowsPerBlock - 1) / rowsPerBlock;
    return first < blocks ? first : blocks;
  };
  int from = rank;
  for (int step = 1; step < ranks; ++step) {
    const Index count = firstOf(from + 1) - firstOf(from);
    if (i < count) break;
    i -= count;
    from = from == 0 ? ranks - 1 : from - 1;
  }
  return firstOf(from) + i;
}

}  // namespace mscclpp
