// 12: a matrix multiplication on tensor cores whose epilogue contributes to an all-reduce, with the residual and an
// RMSNorm between the reduction and its delivery: the second half of a tensor-parallel layer, in one kernel. The same
// type runs on GPUs (gpu.cu) and in emulation (cpu.cpp).
#pragma once

#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/fusion/gemm/norm_rows.hpp"

namespace example {

using namespace mscclpp;

inline constexpr float epsilon = 1e-6f;

/// The layer: rows are reduced by their owners in turn, and hidden state and norm are delivered to all ranks.
template <int Ranks, GemmShape tile>
using Layer = GemmReduce<
    bf16,
    GemmReduceConfig{
        .delivery = RowDelivery::ToAll, .tile = tile, .reducerWarps = (tile.warps() > 1 ? 3 : 1), .ranks = Ranks},
    NormRows<bf16>>;

/// The slice of the inner dimension that a rank multiplies. All arrays are row-major.
struct LayerArrays {
  const bf16* input;     ///< tokens x depth
  const bf16* weight;    ///< width x depth: the transpose of the weights
  const bf16* gain;      ///< width
  const bf16* residual;  ///< tokens x width, the same on all ranks
  bf16* hidden;          ///< tokens x width: the sum and the residual
  bf16* output;          ///< tokens x width: its RMSNorm

  GemmOperands<bf16, KeepPairs<bf16>> operands(std::size_t tokens, std::size_t width, std::size_t depth) const {
    return {makeMatrix(input, tokens, depth), makeMatrix(weight, width, depth), {}};
  }
  NormRows<bf16> result(std::size_t width) const {
    return {width,
            {.weight = gain,
             .epsilon = epsilon,
             .residual = residual,
             .newResidual = hidden,
             .normalised = output,
             .quantised = nullptr,
             .scales = nullptr,
             .scale = nullptr}};
  }
};

}  // namespace example
