// What bench/fusion/cutlass compares: GEMMs in bfloat16, alone and with an all-reduce of their output.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/fusion/cutlass/tile_choice.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::cutlassbench {

/// out = a * b^T: m x n = m x k times k x n; row-major, GPU memory.
struct Problem {
  int m, n, k;
  const void* a;    ///< m x k
  const void* b;    ///< n x k
  void* out;        ///< m x n
  int swizzle = 4;  ///< the most rows of tiles between which a kernel of CUTLASS alternates
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void enqueue(cudaStream_t stream) const = 0;
};

/// The state of the exchange of the fused kernels, for 2 ranks.
struct Exchange {
  int rank;
  Window<2> window;       ///< exchangeBytes(m, n) zero-filled bytes on each rank
  std::uint64_t* epochs;  ///< epochWords words, firstEpoch each
  BoundedWait wait;
};
inline constexpr int exchangeRanks = 2;
inline constexpr std::uint64_t firstEpoch = 1;

/// A kernel fused with an all-reduce, in one hop where tiles are for few rows, else in two.
struct FusedKernels {
  /// out is the sum.
  std::unique_ptr<Gemm> (*makeFused)(const Problem& problem, const Exchange& exchange);
  /// The same without the reduction at its end, so that it waits for nobody: the GEMM inside, which writes to the slots
  /// of both ranks. Null for a kernel whose tiles wait for those of the other rank.
  std::unique_ptr<Gemm> (*makeInside)(const Problem& problem, const Exchange& exchange);
};

/// The kernels of one tile.
struct Kernels {
  /// CUTLASS's kernel.
  std::unique_ptr<Gemm> (*makeStock)(const Problem& problem);
  FusedKernels fromSharedMemory;  ///< GemmRowExchange
  FusedKernels fromRegisters;     ///< EvtRowExchange
  std::size_t (*exchangeBytes)(int m, int n);
};
/// The kernels of cutlassTiles[tile].
template <int tile>
Kernels kernelsOf();

}  // namespace mscclpp::cutlassbench
