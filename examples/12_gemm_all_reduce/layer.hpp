// 12: a matrix multiplication on tensor cores whose epilogue contributes to an all-reduce from registers, with the
// residual and an RMSNorm between the reduction and its delivery: the second half of a tensor-parallel layer, in one
// kernel. The same code runs on GPUs (gpu.cu) and in emulation (cpu.cpp).
#pragma once

#include <cmath>

#include "mscclpp/arch/mma.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/row_exchange.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace example {

using namespace mscclpp;

/// The output is computed in blocks of 16 rows by parts of 64 columns, each by one warp.
inline constexpr int blockRows = 16;
inline constexpr int partColumns = 64;

/// The layer on one rank: a slice of the inner dimension. All arrays are row-major.
struct Layer {
  std::size_t tokens;    ///< rows; any number
  std::size_t width;     ///< columns of the output; a multiple of 64
  std::size_t depth;     ///< this rank's part of the inner dimension; a multiple of 16
  const bf16* input;     ///< tokens x depth
  const bf16* weight;    ///< width x depth: the transpose of the weights
  const bf16* gain;      ///< width
  const bf16* residual;  ///< tokens x width, the same on all ranks
  bf16* hidden;          ///< tokens x width: the sum and the residual
  bf16* output;          ///< tokens x width: its RMSNorm
};

/// Rows are reduced by their owners in turn, and delivered to all ranks.
using Scratch = RowScratch<bf16, RowDelivery::ToAll>;
template <int Ranks>
using LayerArgs = CollectiveArgs<Ranks, Scratch>;

/// The second hop carries two arrays: the hidden state, then its norm.
inline Scratch scratchFor(std::size_t tokens, std::size_t width, int ranks) {
  return {tokens, width, 2 * width * sizeof(bf16), blockRows, ranks};
}

/// Two elements of a row of a matrix with `depth` columns, as a fragment of a tensor core; zeros outside it.
MSCCLPP_INLINE std::uint32_t pairAt(const bf16* matrix, std::size_t rows, std::size_t depth, std::size_t row,
                                    std::size_t column) {
  return row < rows ? arch::loadPlain<std::uint32_t>(matrix + row * depth + column) : 0;
}

/// Computes a part of a block of rows and contributes it, in fragments of two elements, as the tensor core left them.
template <class Warp, class Exchange>
MSCCLPP_INLINE void computePart(const Warp& warp, const Exchange& exchange, const Layer& layer, std::size_t block,
                                std::size_t part) {
  const auto g = static_cast<std::size_t>(warp.rank() / 4);
  const auto t = static_cast<std::size_t>(warp.rank() % 4);
  const std::size_t row = block * blockRows + g;
  constexpr int fragments = partColumns / 8;
  float sums[fragments][4] = {};
  for (std::size_t k = 0; k < layer.depth; k += 16) {
    const auto input = [&](std::size_t r, std::size_t column) {
      return pairAt(layer.input, layer.tokens, layer.depth, r, k + column);
    };
    const std::uint32_t a[4] = {input(row, 2 * t), input(row + 8, 2 * t), input(row, 2 * t + 8),
                                input(row + 8, 2 * t + 8)};
    MSCCLPP_UNROLL
    for (int f = 0; f < fragments; ++f) {
      const std::size_t column = part * partColumns + static_cast<std::size_t>(f) * 8 + g;
      const std::uint32_t b[2] = {pairAt(layer.weight, layer.width, layer.depth, column, k + 2 * t),
                                  pairAt(layer.weight, layer.width, layer.depth, column, k + 2 * t + 8)};
      arch::multiplyAddBf16(warp, sums[f], a, b);
    }
  }
  MSCCLPP_UNROLL
  for (int f = 0; f < fragments; ++f) {
    const std::size_t column = part * partColumns + static_cast<std::size_t>(f) * 8 + 2 * t;
    for (int half = 0; half < 2; ++half) {
      const std::size_t to = row + static_cast<std::size_t>(half) * 8;
      if (to >= layer.tokens) continue;
      exchange.contribute(to, column,
                          Vector<bf16, 2>{narrow<bf16>(sums[f][2 * half]), narrow<bf16>(sums[f][2 * half + 1])});
    }
  }
}

/// Adds the residual to a reduced row and normalises it. One warp holds the whole row.
struct AddResidualAndNormalise {
  const Layer& layer;

  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void operator()(const Warp& warp, std::size_t row, Packs& packs, const Output& output) const {
    float squares = 0.0f;
    packs.forEach([&](std::size_t column, Pack<bf16>& pack) {
      const auto residual = fromWord<bf16>(arch::loadWide(layer.residual + row * layer.width + column));
      for (int i = 0; i < packSize<bf16>; ++i) {
        pack[i] = narrow<bf16>(widen<bf16>(pack[i]) + widen<bf16>(residual[i]));
        squares += widen<bf16>(pack[i]) * widen<bf16>(pack[i]);
      }
      output(column * sizeof(bf16), toWord<bf16>(pack));
    });
    for (int distance = warp.size() / 2; distance > 0; distance /= 2) {
      squares += arch::bitCast<float>(warp.shuffle(arch::bitCast<std::uint32_t>(squares), warp.rank() ^ distance));
    }
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(layer.width) + 1e-6f);
    packs.forEach([&](std::size_t column, Pack<bf16>& pack) {
      const auto gain = fromWord<bf16>(arch::loadWide(layer.gain + column));
      for (int i = 0; i < packSize<bf16>; ++i) {
        pack[i] = narrow<bf16>(widen<bf16>(pack[i]) * scale * widen<bf16>(gain[i]));
      }
      output((layer.width + column) * sizeof(bf16), toWord<bf16>(pack));
    });
  }
};

/// Stores the words of a result where they belong.
struct StoreHiddenAndOutput {
  const Layer& layer;

  MSCCLPP_INLINE void operator()(std::size_t row, std::size_t byte, const Word128& word) const {
    const std::size_t element = byte / sizeof(bf16);
    bf16* const to = element < layer.width ? layer.hidden + row * layer.width + element
                                           : layer.output + row * layer.width + element - layer.width;
    arch::storeWide(to, word);
  }
};

/// The whole layer. Called by all threads of a grid, whose warps have 32 lanes, on every rank; all blocks must be
/// resident at once. maxWidth: the largest width, which bounds the registers of a row. Returns whether all waits of the
/// thread succeeded.
template <std::size_t maxWidth, class GridType, int Ranks>
MSCCLPP_INLINE bool runLayer(const GridType& grid, const LayerArgs<Ranks>& args, const Layer& layer) {
  auto wait = args.wait;
  NoTrace trace;
  const auto warp = grid.warp();
  auto exchange = makeRowExchange<Sum>(grid, args, wait, trace);
  // Parts of the rows of other ranks first: their way is the longest.
  const std::size_t parts = layer.width / partColumns;
  const auto first = static_cast<std::size_t>(grid.warpIndex() * grid.blockCount() + grid.blockIndex());
  for (std::size_t i = first; i < exchange.blocks() * parts;
       i += static_cast<std::size_t>(grid.warpCount() * grid.blockCount())) {
    const std::size_t block = exchange.blockInOrder(i / parts);
    computePart(warp, exchange, layer, block, i % parts);
    exchange.publish(warp, block);
  }
  constexpr int packsPerLane = static_cast<int>(ceilDivide(maxWidth, 32 * packSize<bf16>));
  const StoreHiddenAndOutput sink{layer};
  const bool reduced =
      exchange.template reduce<packsPerLane>(static_cast<std::uint32_t>(parts), AddResidualAndNormalise{layer}, sink);
  const bool collected = reduced && exchange.collect(sink);
  return exchange.finish() && collected;
}

}  // namespace example
