// Tuning: algorithms by message size, shapes of pipelines and launches. Measured; see docs/performance.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "algorithms.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/collective/tile_rings.hpp"

namespace mscclpp::kernels {

/// The most blocks of a kernel, unless a caller wants fewer: with 128 the links are busy.
inline constexpr int mostBlocks = 128;

/// The algorithm for messages of up to and including `maxBytes` bytes (of CollectiveCall::count elements) on a number
/// of ranks. If it is not compiled for the type, or not possible on the links or without registered outputs, the next
/// entry of the collective and number of ranks applies, and in the end the one for messages of any size.
struct TuningEntry {
  CollectiveType collective;
  int ranks;
  std::size_t maxBytes;
  const char* algorithm;
  int blocks = mostBlocks;  ///< the entry is for launches of at most this many
};

// Without multicast, bf16, H200 and NVSwitch. Other numbers of ranks use the entries of the nearest one here. Outputs
// that are registered get bulk copies where these are faster: for long messages, and earlier with few blocks.
inline constexpr auto gpuTuningTable = std::to_array<TuningEntry>({
    {CollectiveType::AllReduce, 4, 96 * KiB, "one_shot_sentinel"},
    {CollectiveType::AllReduce, 4, 160 * KiB, "one_shot_ll128"},
    {CollectiveType::AllReduce, 4, 160 * KiB, "one_shot_ll16"},
    {CollectiveType::AllReduce, 4, 3 * MiB, "two_shot_ll128"},
    {CollectiveType::AllReduce, 4, 16 * MiB, "two_shot_sentinel"},
    {CollectiveType::AllReduce, 2, 32 * KiB, "one_shot_sentinel"},
    {CollectiveType::AllReduce, 2, 256 * KiB, "one_shot_ll128"},
    {CollectiveType::AllReduce, 2, 256 * KiB, "one_shot_sentinel"},
    {CollectiveType::AllReduce, 2, 2 * MiB, "two_shot_ll128"},
    {CollectiveType::AllReduce, 2, 16 * MiB, "two_shot_sentinel"},
    {CollectiveType::AllGather, 2, 4 * KiB, "sentinel"},
    {CollectiveType::AllGather, 2, 512 * KiB, "ll128"},
    {CollectiveType::AllGather, 2, 4 * MiB, "sentinel"},
    {CollectiveType::AllGather, 2, 16 * MiB, "pipelined", 32},
    {CollectiveType::AllGather, 2, noLimit, "bulk", 32},
    {CollectiveType::AllGather, 2, 64 * MiB, "pipelined"},
    {CollectiveType::AllGather, 2, noLimit, "bulk"},
    {CollectiveType::ReduceScatter, 2, 128 * KiB, "sentinel"},
    {CollectiveType::ReduceScatter, 2, 512 * KiB, "ll128"},
    {CollectiveType::ReduceScatter, 2, 4 * MiB, "sentinel"},
    {CollectiveType::AllToAll, 2, 4 * KiB, "sentinel"},
    {CollectiveType::AllToAll, 2, 512 * KiB, "ll128"},
    {CollectiveType::AllToAll, 2, 4 * MiB, "sentinel"},
    {CollectiveType::AllToAll, 2, 32 * MiB, "pipelined", 32},
    {CollectiveType::AllToAll, 2, noLimit, "bulk", 32},
    {CollectiveType::AllToAll, 2, 128 * MiB, "pipelined"},
    {CollectiveType::AllToAll, 2, noLimit, "bulk"},
    {CollectiveType::Broadcast, 2, 64 * KiB, "ll16"},
    {CollectiveType::Broadcast, 2, 2 * MiB, "ll128"},
    {CollectiveType::Broadcast, 2, 256 * KiB, "ll16"},
    {CollectiveType::Broadcast, 2, 16 * MiB, "pipelined", 32},
    {CollectiveType::Broadcast, 2, noLimit, "bulk", 32},
    {CollectiveType::Broadcast, 2, 128 * MiB, "pipelined"},
    {CollectiveType::Broadcast, 2, noLimit, "bulk"},
    {CollectiveType::Reduce, 2, 128 * KiB, "ll16"},
    {CollectiveType::Reduce, 2, 2 * MiB, "ll128"},
    {CollectiveType::Reduce, 2, 256 * KiB, "ll16"},
    {CollectiveType::Gather, 2, 128 * KiB, "ll16"},
    {CollectiveType::Gather, 2, 2 * MiB, "ll128"},
    {CollectiveType::Gather, 2, 256 * KiB, "ll16"},
    {CollectiveType::Scatter, 2, 128 * KiB, "ll16"},
    {CollectiveType::Scatter, 2, 2 * MiB, "ll128"},
    {CollectiveType::Scatter, 2, 256 * KiB, "ll16"},
    {CollectiveType::SendReceive, 2, 64 * KiB, "ll16"},
    {CollectiveType::SendReceive, 2, 1 * MiB, "ll128"},
    {CollectiveType::ReduceScatterV, 2, 256 * KiB, "ll16"},
});

// On CPUs the pipeline, which copies whole tiles, is always faster than packets: measured on two cores of an x86-64
// server, 2 and 4 ranks, float.
inline constexpr std::array<TuningEntry, 0> cpuTuningTable{};

/// Whether the entries name algorithms that support messages of their sizes.
template <std::size_t n>
constexpr bool areValid(const std::array<TuningEntry, n>& entries) {
  for (const TuningEntry& entry : entries) {
    const std::size_t index = indexOf(entry.collective, entry.algorithm);
    if (index == algorithmTable.size() || isTooLong(algorithmTable[index], entry.maxBytes)) return false;
  }
  return true;
}
static_assert(areValid(gpuTuningTable) && areValid(cpuTuningTable));

/// An algorithm for messages of any size: the shape of its rings or parts, and threads per block.
struct PipelineTuning {
  PipelineShape shape;
  int threads;
};

/// Of an algorithm on a GPU, the same for all that share a region. A step has a fixed cost of 3 to 4 us, mostly the
/// release of its stores: so a step sends 32 KiB or more per block, to all peers together, and more if there are few
/// blocks. Of a send/receive: the rings of a direction with one peer, which has at most as many blocks; as many
/// again are for the other direction. With many peers at a time, a block has several rings. Bulk copies take parts of
/// 128 KiB; a multiprocessor sends 46 GB/s, half of it to this rank's own output on 2 ranks, so 32 blocks leave some
/// reserve. maxBlocks: of a launch.
constexpr PipelineTuning gpuPipeline(const Algorithm& algorithm, int ranks, int maxBlocks) {
  if (algorithm.protocol == Protocol::Bulk) {
    return {{.tilePacks = 128 * KiB / 16, .blocks = std::clamp(maxBlocks, 1, 32)}, 512};
  }
  const bool isPair = algorithm.collective == CollectiveType::SendReceive;
  const bool hasTwoHops = algorithm.collective == CollectiveType::AllReduce;  // and sends as much again in the second
  const std::size_t tilePacks = isPair ? (ranks > 2 ? 2048 : 4096) : ranks > 2 ? 512 : hasTwoHops ? 1024 : 2048;
  const int most = isPair ? maxBlocks / 2 : maxBlocks;
  const int blocks = std::clamp(most, 1, !isPair ? 128 : ranks > 2 ? 32 : 64);
  const std::size_t longer = blocks > 64 || isPair ? 1 : blocks > 16 ? 2 : 4;
  return {{.tilePacks = tilePacks * longer, .blocks = blocks, .slots = 4}, 544};
}
constexpr PipelineTuning cpuPipeline(const Algorithm& /*algorithm*/) {
  return {{.tilePacks = 2048, .blocks = 1, .slots = 4}, 1};
}

/// Blocks and threads of a packet algorithm on a GPU for messages of `packs` packs of 16 bytes: one row of packs per
/// warp as far as possible, in small blocks up to the largest number of blocks, so that their stores drain
/// concurrently, then in larger blocks.
constexpr LaunchShape packetShape(const Algorithm& algorithm, std::size_t packs, int ranks, int maxBlocks) {
  constexpr std::size_t warpThreads = 32;
  constexpr std::size_t smallBlock = 2;
  constexpr std::size_t largeBlock = 16;
  const std::size_t packsPerRow = algorithm.protocol == Protocol::LL128 ? 30 : 32;
  const std::size_t units =
      algorithm.pattern == Pattern::OneShot ? packs : ceilDivide(packs, static_cast<std::size_t>(ranks));
  const std::size_t rows = ceilDivide(units, packsPerRow);
  const std::size_t blocks =
      std::clamp<std::size_t>(ceilDivide(rows, smallBlock), 1, static_cast<std::size_t>(maxBlocks));
  const std::size_t warps = std::clamp(ceilDivide(rows, blocks), smallBlock, largeBlock);
  return {static_cast<int>(blocks), static_cast<int>(warps * warpThreads)};
}

/// The blocks of a GPU for a message to or from one rank, of which there are up to `most`. In a pipeline each of them
/// has the same number of rings, but for the last.
constexpr int messageBlocks(const Algorithm& algorithm, const PipelineShape& rings, std::size_t bytes, int ranks,
                            int most) {
  const std::size_t packs = ceilDivide(bytes, std::size_t{16});
  if (!isPipelined(algorithm.protocol)) return packetShape(algorithm, packs, ranks, most).blocks;
  const std::size_t used = std::min(ceilDivide(packs, rings.tilePacks), static_cast<std::size_t>(rings.blocks));
  return static_cast<int>(ceilDivide(used, ceilDivide(used, static_cast<std::size_t>(most))));
}

}  // namespace mscclpp::kernels
