// 05: an all-reduce fused with what comes before and after it: the row-parallel linear layer of a transformer, then
// residual add and RMSNorm, as one kernel. The same code runs on CPU ranks: cpu.cpp and gpu.cu.
#pragma once

#include <cmath>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace example {

using namespace mscclpp;

/// output = RMSNorm(hidden) * gain, hidden = residual + sum over the ranks of input * weight. Row-major matrices. Each
/// rank holds `depth` columns of the input and the same rows of the weight; the rest is alike on all ranks.
struct Layer {
  int tokens;
  int width;
  int depth;
  const float* input;     ///< tokens x depth
  const float* weight;    ///< depth x width
  const float* residual;  ///< tokens x width
  const float* gain;      ///< width
  float* hidden;          ///< tokens x width
  float* output;          ///< tokens x width
};

/// The source: this rank's part of the product, computed when the all-reduce calls it, and never stored.
/// A GEMM could pass its tile from registers in the same way.
struct PartialProduct {
  Layer layer;

  MSCCLPP_INLINE Pack<float> operator()(std::size_t first, int valid) const {
    Pack<float> sums{};
    for (int i = 0; i < valid; ++i) {
      const auto width = static_cast<std::size_t>(layer.width);
      const float* row = layer.input + (first + i) / width * layer.depth;
      const float* column = layer.weight + (first + i) % width;
      for (int k = 0; k < layer.depth; ++k) sums[i] += row[k] * column[k * width];
    }
    return sums;
  }
};

/// The sink: adds the residual to what has been reduced, in registers.
struct AddResidual {
  Layer layer;

  MSCCLPP_INLINE void operator()(std::size_t first, const Pack<float>& reduced, int valid) const {
    for (int i = 0; i < valid; ++i) layer.hidden[first + i] = layer.residual[first + i] + reduced[i];
  }
};

/// RMSNorm, one token per warp. The lanes add up in an order that depends on the width of the warp only, so that all
/// ranks get the same bits.
template <class GridType>
MSCCLPP_INLINE void normalise(const GridType& grid, const Layer& layer) {
  const auto warp = grid.warp();
  for (int token = grid.blockIndex() * grid.warpCount() + grid.warpIndex(); token < layer.tokens;
       token += grid.blockCount() * grid.warpCount()) {
    const std::size_t row = static_cast<std::size_t>(token) * layer.width;
    float squares = 0.0f;
    for (int i = warp.rank(); i < layer.width; i += warp.size()) {
      squares += layer.hidden[row + i] * layer.hidden[row + i];
    }
    for (int distance = warp.size() / 2; distance > 0; distance /= 2) {
      squares += arch::bitCast<float>(warp.shuffle(arch::bitCast<std::uint32_t>(squares), warp.rank() ^ distance));
    }
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(layer.width) + 1e-6f);
    for (int i = warp.rank(); i < layer.width; i += warp.size()) {
      layer.output[row + i] = layer.hidden[row + i] * scale * layer.gain[i];
    }
  }
}

/// The algorithm of the all-reduce: one line to change.
using Collective = AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot}>;

/// The whole layer. Called by all threads of the grid, on every rank. barrier: in memory of this rank's device, zero at
/// first; all blocks must be resident at once.
template <class GridType>
MSCCLPP_INLINE void runLayer(const GridType& grid, const Collective::Args& args, const Layer& layer,
                             GridBarrier& barrier) {
  const bool isReduced = Collective::run(grid, args, PartialProduct{layer}, AddResidual{layer});
  // Several blocks wrote the elements of a token.
  auto wait = args.wait;
  if (!barrier.sync(grid, wait) || !isReduced) return;  // a wait has failed: the host throws
  normalise(grid, layer);
}

}  // namespace example
