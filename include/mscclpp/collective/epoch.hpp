// The epoch of a collective: the sequence number of the call, kept and advanced in device memory, so that a captured
// graph replays correctly.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The largest number of blocks of a launch of a collective.
inline constexpr int maxBlocks = 512;

/// maxBlocks words that all hold the epoch of the next call, from 1. Block b reads word b and, at the end, advances
/// words b, b + blocks, ...: every word is advanced by exactly one block in every launch, whatever the number of
/// blocks, without atomic operations and without sharing between blocks.
struct EpochWords {
  std::uint64_t* words;

  template <class Grid>
  MSCCLPP_INLINE std::uint64_t current(const Grid& grid) const {
    return words[grid.blockIndex()];
  }

  /// Called by all threads of every block once the block no longer uses the current epoch.
  template <class Grid>
  MSCCLPP_INLINE void advance(const Grid& grid, std::uint64_t next) const {
    const auto block = grid.block();
    block.sync();  // all threads of the block have read the word
    MSCCLPP_NO_UNROLL
    for (int word = grid.blockIndex() + block.rank() * grid.blockCount(); word < maxBlocks;
         word += block.size() * grid.blockCount()) {
      words[word] = next;
    }
  }
};

}  // namespace mscclpp
