// A one-hop all-reduce through the switch: every rank writes its own memory, and reads the sum of all ranks through one
// address.
#pragma once

#include <string>
#include <vector>

#include "example.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/channel/switch.hpp"

namespace example {

/// Element i of the contribution of `rank`.
inline float contribution(int rank, std::size_t i) {
  return static_cast<float>(static_cast<int>((i + 3 * static_cast<std::size_t>(rank)) % 17) - 8);
}

/// The whole contribution of `rank`.
inline std::vector<mscclpp::bf16> contributions(int rank, std::size_t count) {
  std::vector<mscclpp::bf16> input(count);
  for (std::size_t i = 0; i < count; ++i) input[i] = mscclpp::narrow<mscclpp::bf16>(contribution(rank, i));
  return input;
}

/// Throws unless `output` is the sum of what the ranks contribute.
inline void requireSum(const std::vector<mscclpp::bf16>& output, int ranks) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    float expected = 0;
    for (int r = 0; r < ranks; ++r) expected += contribution(r, i);
    require(mscclpp::widen<mscclpp::bf16>(output[i]) == expected,
            "element " + std::to_string(i) + " of " + std::to_string(output.size()) + " is wrong");
  }
}

/// output[i] = the sum of input[i] over the ranks. Called by all threads of the grid, by all ranks with the same count
/// and as many blocks. The channel's buffer has two halves of count elements each, rounded up to 16 bytes. Returns
/// false if a rank did not arrive.
///
/// Block b of every rank synchronizes at barrier b, and handles the same part of the message; so no block waits for
/// other parts. One barrier per call is enough, since calls alternate between the halves: a block that has passed the
/// barrier of call k knows that all ranks have ended call k - 1, and may overwrite in call k + 1 what was read there.
template <class T, class GridType>
MSCCLPP_HOST_DEVICE bool switchAllReduce(const GridType& grid, const mscclpp::SwitchChannelHandle& channel,
                                         const T* input, T* output, std::size_t count) {
  using namespace mscclpp;
  using V = Vector<T, multicastWidth<T, HardwareReduceOp::Add>>;
  constexpr auto width = static_cast<std::size_t>(V::size);
  const auto block = grid.block();
  const auto thread = static_cast<std::size_t>(block.rank());
  const auto threads = static_cast<std::size_t>(block.size());
  const Range part = evenPart(ceilDivide(count, width), static_cast<std::size_t>(grid.blockCount()),
                              static_cast<std::size_t>(grid.blockIndex()));
  auto barrier = channel.semaphore(grid.blockIndex());
  // How many calls there have been: from a word that only this block advances, below, by the number of ranks.
  const std::uint64_t calls = *barrier.barrierGen / static_cast<std::uint64_t>(barrier.nRanks);
  const std::size_t half = calls % 2 * (channel.bufferSize / 2 / sizeof(V));
  V* own = channel.local<V>() + half;
  bool complete = true;

  for (std::size_t v = part.begin + thread; v < part.end; v += threads) {
    for (std::size_t i = 0; i < width; ++i) {
      if (v * width + i < count) own[v][static_cast<int>(i)] = input[v * width + i];
    }
  }
  block.sync();
  if (block.rank() == 0) {
    barrier.signal();
    complete = barrier.wait();
  }
  block.sync();
  for (std::size_t v = part.begin + thread; v < part.end; v += threads) {
    const V sum = channel.reduce<V>(half + v);
    for (std::size_t i = 0; i < width; ++i) {
      if (v * width + i < count) output[v * width + i] = sum[static_cast<int>(i)];
    }
  }
  return complete;
}

}  // namespace example
