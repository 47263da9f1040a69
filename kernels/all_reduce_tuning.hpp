// Tuning of all-reduce: which algorithm for which size, with how many blocks and threads. Measured values; docs/performance.md says where.
#pragma once

#include <algorithm>
#include <cstddef>

#include "all_reduce_algorithms.hpp"
#include "all_reduce_call.hpp"
#include "mscclpp/basic/partition.hpp"

namespace mscclpp::kernels {

/// Up to and including `maxBytes` of message, the algorithm of that name.
struct SizeChoice {
  std::size_t maxBytes;
  const char* algorithm;
};

// H200, NVSwitch, 4 GPUs, bf16, no multicast.
inline constexpr std::array gpuChoices = {
    SizeChoice{32 * KiB, "one_shot_ll8"},
    SizeChoice{96 * KiB, "one_shot_ll16"},
    SizeChoice{192 * KiB, "two_shot_ll16"},
    SizeChoice{16 * MiB, "two_shot_sentinel"},
};

// Two cores of an x86-64 server, 2 and 4 ranks, float.
inline constexpr std::array cpuChoices = {
    SizeChoice{8 * KiB, "one_shot_ll16"},
};

/// Pipelined: what a block sends to each peer in a step, and how many blocks every launch has.
struct PipelineTuning {
  std::size_t tilePacks;
  int blocks;
  int threads;
};
inline constexpr PipelineTuning gpuPipeline{1024, 128, 512};
inline constexpr PipelineTuning cpuPipeline{2048, 1, 1};

/// Blocks and threads of a packet algorithm on a GPU: one pack a thread as long as there are SMs, first in many small blocks, whose stores drain side by
/// side, then in larger ones.
constexpr Shape packetShape(const AllReduceConfig& config, std::size_t packs, int ranks) {
  constexpr std::size_t smallBlock = 64;
  constexpr std::size_t largeBlock = 512;
  constexpr std::size_t blocks = 128;
  const std::size_t units =
      config.pattern == Pattern::OneShot ? packs : ceilDivide(packs, static_cast<std::size_t>(ranks));
  const std::size_t count = std::clamp<std::size_t>(ceilDivide(units, smallBlock), 1, blocks);
  const std::size_t threads = std::clamp(roundUp(ceilDivide(units, count), smallBlock), smallBlock, largeBlock);
  return {static_cast<int>(count), static_cast<int>(threads)};
}

}  // namespace mscclpp::kernels
