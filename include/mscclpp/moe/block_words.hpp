// The words of 32 bits that a block computes with: in shared memory, where a grid has it and they fit.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::moe {

/// More words of a block than this are in global memory.
inline constexpr std::size_t mostSharedBytes = 48 << 10;

/// Whether so many words of a block are in shared memory, where a grid has it.
MSCCLPP_HOST_DEVICE constexpr bool sharesWords(std::size_t words) {
  return words * sizeof(std::uint32_t) <= mostSharedBytes;
}
/// The shared memory that they take.
MSCCLPP_HOST_DEVICE constexpr std::size_t sharedWordBytes(std::size_t words) {
  return sharesWords(words) ? words * sizeof(std::uint32_t) : 0;
}

/// The words of the calling block: in shared memory `offset` bytes from its beginning or, if they do not fit there, in
/// `memory`, [blocks][words].
template <Grid GridType>
MSCCLPP_INLINE std::uint32_t* wordsOfBlock(const GridType& grid, std::size_t words, std::size_t offset,
                                           std::uint32_t* memory) {
  if constexpr (SharedMemoryGrid<GridType>) {
    if (sharesWords(words)) return reinterpret_cast<std::uint32_t*>(grid.sharedMemory() + offset);
  }
  return memory + static_cast<std::size_t>(grid.blockIndex()) * words;
}

}  // namespace mscclpp::moe
