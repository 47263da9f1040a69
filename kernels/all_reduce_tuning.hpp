// Tuning of all-reduce: which algorithm for which size, with how many blocks and threads. Measured values; docs/performance.md says where.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "all_reduce_algorithms.hpp"
#include "all_reduce_call.hpp"
#include "mscclpp/basic/partition.hpp"

namespace mscclpp::kernels {

/// Up to and including `maxBytes` of message, the algorithm of that name; the next entry where it is not compiled for the type and operator, or the links
/// do not allow it.
struct SizeChoice {
  std::size_t maxBytes;
  const char* algorithm;
};

// H200, NVSwitch, 4 GPUs, bf16, no multicast.
inline constexpr std::array gpuChoices = {
    SizeChoice{96 * KiB, "one_shot_sentinel"}, SizeChoice{160 * KiB, "one_shot_ll128"},
    SizeChoice{160 * KiB, "one_shot_ll16"},    SizeChoice{3 * MiB, "two_shot_ll128"},
    SizeChoice{16 * MiB, "two_shot_sentinel"},
};

// Two cores of an x86-64 server, 2 and 4 ranks, float: one thread moves packets one at a time and tiles whole, so that packets never win.
inline constexpr std::array<SizeChoice, 0> cpuChoices{};

/// Whether the entries name algorithms that take messages of their sizes, in growing order.
template <std::size_t n>
constexpr bool areSound(const std::array<SizeChoice, n>& choices) {
  std::size_t last = 0;
  for (const SizeChoice& choice : choices) {
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
static_assert(areSound(gpuChoices) && areSound(cpuChoices));

/// Pipelined: what a block sends to each peer in a step, and how many blocks every launch has.
struct PipelineTuning {
  std::size_t tilePacks;
  int blocks;
  int threads;
};
inline constexpr PipelineTuning gpuPipeline{512, 128, 544};
inline constexpr PipelineTuning cpuPipeline{2048, 1, 1};

/// Blocks and threads of a packet algorithm on a GPU: a row of packs a warp as long as there are SMs, first in many small blocks, whose stores drain side
/// by side, then in larger ones.
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
