// 16: the feed-forward layer of a transformer, tensor-parallel with sequence-parallel input and output: two fused
// kernels, all-gather and GEMM with a gated activation, then GEMM and reduce-scatter with residual and RMSNorm. The
// same types run on GPUs (gpu.cu) and in emulation (cpu.cpp).
#pragma once

#include "mscclpp/fusion/gemm/all_gather_gemm.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/fusion/gemm/norm_rows.hpp"

namespace example {

using namespace mscclpp;

inline constexpr float epsilon = 1e-6f;

/// The kernels of one rank. otherWarps: of each block, which send or reduce.
template <GemmShape tile, int otherWarps>
struct Mlp {
  using Up = AllGatherGemm<bf16, AllGatherGemmConfig{.tile = tile, .senderWarps = otherWarps}>;
  using Down =
      GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::ToOwner, .tile = tile, .reducerWarps = otherWarps},
                 NormRows<bf16>>;
};

/// Sizes, the same on all ranks.
struct Sizes {
  std::size_t tokens;  ///< of all ranks: each has a slice
  std::size_t hidden;  ///< elements of a token; a multiple of 8
  std::size_t inner;   ///< this rank's part of the inner dimension
};

/// The arrays of one rank; row-major.
struct MlpArrays {
  const bf16* input;     ///< its tokens x hidden
  const bf16* gateUp;    ///< 2 inner x hidden: rows of the gate and of the up projection in turn
  const bf16* down;      ///< hidden x inner
  const bf16* gain;      ///< hidden
  const bf16* residual;  ///< its tokens x hidden
  bf16* activations;     ///< tokens x inner
  bf16* newResidual;     ///< its tokens x hidden
  bf16* output;          ///< its tokens x hidden: the norm of newResidual

  GemmOperands<bf16, GateBySilu<bf16>> upOperands(const Sizes& sizes, std::size_t ownTokens) const {
    return {makeMatrix(input, ownTokens, sizes.hidden), makeMatrix(gateUp, 2 * sizes.inner, sizes.hidden), {}};
  }
  Matrix<bf16> upOutput(const Sizes& sizes) const { return makeMatrix(activations, sizes.tokens, sizes.inner); }
  GemmOperands<bf16, KeepPairs<bf16>> downOperands(const Sizes& sizes) const {
    return {makeMatrix<const bf16>(activations, sizes.tokens, sizes.inner),
            makeMatrix(down, sizes.hidden, sizes.inner),
            {}};
  }
  NormRows<bf16> downResult(const Sizes& sizes) const {
    return {sizes.hidden,
            {.weight = gain,
             .epsilon = epsilon,
             .residual = residual,
             .newResidual = newResidual,
             .normalised = output,
             .quantised = nullptr,
             .scales = nullptr,
             .scale = nullptr}};
  }
};

}  // namespace example
