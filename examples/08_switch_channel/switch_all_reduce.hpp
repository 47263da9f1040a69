// An all-reduce of one hop through the switch: everyone writes its own memory, and reads the sum of all through one address.
#pragma once

#include <string>
#include <vector>

#include "example.hpp"
#include "mscclpp/basic/access.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/channel/switch.hpp"

namespace example {

/// What rank contributes as element i.
inline float contribution(int rank, std::size_t i) {
  return static_cast<float>(static_cast<int>((i + 3 * static_cast<std::size_t>(rank)) % 17) - 8);
}

/// What rank contributes in all.
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

/// output[i] = the sum of input[i] over the ranks. Called by all threads of the grid, by all ranks with the same count and as many blocks. The channel's
/// buffer has two halves of count elements each, rounded up to 16 bytes. False: a rank did not come.
///
/// Block b of every rank meets at barrier b, and takes the same part of the message; so no block waits for other parts. One barrier a call is enough, since
/// calls alternate between the halves: who has passed the barrier of call k knows that everyone has ended call k - 1, and may overwrite in call k + 1 what
/// was read there.
template <class T, class GridType>
MSCCLPP_HOST_DEVICE bool switchAllReduce(const GridType& grid, const mscclpp::SwitchChannelHandle& channel,
                                         const T* input, T* output, std::size_t count) {
  using namespace mscclpp;
  using V = Vector<T, multicastWidth<T, Arithmetic::Add>>;
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
