// The epoch of a collective: the sequence number of the call, kept and advanced in device memory, so that a captured
// graph replays correctly.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The words of a collective's epochs, and the largest number of blocks of a launch: one word is not a block's.
inline constexpr int epochWords = 512;
inline constexpr int maxBlocks = epochWords - 1;

/// epochWords words in device memory, which all hold the scratch's firstEpoch before the first call. Word b < maxBlocks
/// is the epoch of the next call, for block b.
///
/// Where blocks share slots, all words advance together: block b of a launch reads word b and, at the end, advances
/// words b, b + blocks, ...: every word is advanced by exactly one block in every launch, whatever the number of
/// blocks, without atomic operations and without sharing between blocks. In a tile pipeline each block has its own
/// sequence.
///
/// A call with a failed wait stops the sequence: later calls, which may be enqueued already, do nothing. Otherwise they
/// would tell the peers that the data of the failed call has arrived. The last word holds the epoch of the failed call;
/// in a tile pipeline, the word of the block itself says that it has stopped.
struct EpochWords {
  std::uint64_t* words;

  template <class Grid>
  MSCCLPP_INLINE std::uint64_t current(const Grid& grid) const {
    return words[grid.blockIndex()];
  }

  /// Whether a call before this epoch has failed. The same in all threads of a launch, also while one of them fails.
  MSCCLPP_INLINE bool hasStopped(std::uint64_t epoch) const {
    const std::uint64_t word = arch::load<arch::Order::Relaxed, arch::Scope::Device>(&words[maxBlocks]);
    return (word & stopped) != 0 && (word & ~stopped) < epoch;
  }
  /// Called by a thread with a failed wait, before the call of this epoch ends.
  MSCCLPP_INLINE void stop(std::uint64_t epoch) const {
    arch::store<arch::Order::Relaxed, arch::Scope::Device>(&words[maxBlocks], epoch | stopped);
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

  /// The mark of an epoch from which on there are no more calls.
  static constexpr std::uint64_t stopped = std::uint64_t{1} << 63;
};

}  // namespace mscclpp
