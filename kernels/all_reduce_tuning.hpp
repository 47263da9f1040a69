// Tuning of all-reduce: algorithm by message size, numbers of blocks and threads. Measured; see docs/performance.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "all_reduce_algorithms.hpp"
#include "all_reduce_call.hpp"
#include "mscclpp/basic/partition.hpp"

namespace mscclpp::kernels {

/// The algorithm for messages of up to and including `maxBytes` bytes. If it is not compiled for the type and operator,
/// or not possible on the links, the next entry applies.
struct TuningEntry {
  std::size_t maxBytes;
  const char* algorithm;
};

// H200, NVSwitch, 4 GPUs, bf16, no multicast.
inline constexpr std::array gpuTuningTable = {
    TuningEntry{96 * KiB, "one_shot_sentinel"}, TuningEntry{160 * KiB, "one_shot_ll128"},
    TuningEntry{160 * KiB, "one_shot_ll16"},    TuningEntry{3 * MiB, "two_shot_ll128"},
    TuningEntry{16 * MiB, "two_shot_sentinel"},
};

// Measured on two cores of an x86-64 server, 2 and 4 ranks, float: the pipeline, which copies whole tiles, is always
// faster than packets.
inline constexpr std::array<TuningEntry, 0> cpuTuningTable{};

/// Whether the entries are sorted by size and name algorithms that support messages of their sizes.
template <std::size_t n>
constexpr bool areValid(const std::array<TuningEntry, n>& choices) {
  std::size_t last = 0;
  for (const TuningEntry& choice : choices) {
    bool fits = false;
    for (const AllReduceAlgorithm& algorithm : allReduceAlgorithms) {
      if (std::string_view(algorithm.name) != choice.algorithm) continue;
      fits = algorithm.maxBytes == noLimit || choice.maxBytes <= algorithm.maxBytes;
    }
    if (!fits || choice.maxBytes < last) return false;
    last = choice.maxBytes;
  }
  return true;
}
static_assert(areValid(gpuTuningTable) && areValid(cpuTuningTable));

/// The pipelined algorithm: packs that a block sends to each peer per step, blocks per launch, threads per block.
struct PipelineTuning {
  std::size_t tilePacks;
  int blocks;
  int threads;
};
inline constexpr PipelineTuning gpuPipeline{.tilePacks = 512, .blocks = 128, .threads = 544};
inline constexpr PipelineTuning cpuPipeline{.tilePacks = 2048, .blocks = 1, .threads = 1};

/// Blocks and threads of a packet algorithm on a GPU: one row of packs per warp as far as possible, in small blocks up
/// to the largest number of blocks, so that their stores drain concurrently, then in larger blocks.
constexpr LaunchShape packetShape(const AllReduceConfig& config, std::size_t packs, int ranks) {
  constexpr std::size_t warpThreads = 32;
  constexpr std::size_t smallBlock = 2;
  constexpr std::size_t largeBlock = 16;
  constexpr std::size_t maxCount = 128;
  const std::size_t packsPerRow = config.protocol == Protocol::LL128 ? 30 : 32;
  const std::size_t units =
      config.pattern == Pattern::OneShot ? packs : ceilDivide(packs, static_cast<std::size_t>(ranks));
  const std::size_t rows = ceilDivide(units, packsPerRow);
  const std::size_t blocks = std::clamp<std::size_t>(ceilDivide(rows, smallBlock), 1, maxCount);
  const std::size_t warps = std::clamp(ceilDivide(rows, blocks), smallBlock, largeBlock);
  return {static_cast<int>(blocks), static_cast<int>(warps * warpThreads)};
}

}  // namespace mscclpp::kernels
