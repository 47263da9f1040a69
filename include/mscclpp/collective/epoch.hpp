// The call number of a collective, kept and advanced in device memory, so that a captured graph replays correctly for ever.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Blocks that one launch of a collective may have.
inline constexpr int maxBlocks = 512;

/// maxBlocks words that all hold the number of the next call, from 1. Block b reads word b and, at the end, advances the words b, b + blocks, ...: so every
/// word is advanced by exactly one block in every launch, whatever its grid, with no atomic operation and no word shared by two blocks.
struct EpochWords {
  std::uint64_t* words;

  template <class Grid>
  MSCCLPP_INLINE std::uint64_t current(const Grid& grid) const {
    return words[grid.blockIndex()];
  }

  /// Called by all threads of every block when the block has no more use for the current epoch.
  template <class Grid>
  MSCCLPP_INLINE void advance(const Grid& grid, std::uint64_t next) const {
    const auto block = grid.block();
    block.sync();  // no thread of the block may yet have to read the word
    MSCCLPP_NO_UNROLL
    for (int word = grid.blockIndex() + block.rank() * grid.blockCount(); word < maxBlocks;
         word += block.size() * grid.blockCount()) {
      words[word] = next;
    }
  }
};

}  // namespace mscclpp
