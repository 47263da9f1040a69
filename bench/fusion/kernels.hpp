// What bench/fusion compares: an all-reduce, residual and RMSNorm in one kernel, and the last two as a separate kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::fusionbench {

/// Rows of bf16 and what is computed from them; GPU memory.
struct Norm {
  std::size_t rows;
  std::size_t hidden;
  const void* input;     ///< the contributions; for the separate kernel their sum
  const void* residual;  ///< rows x hidden
  const void* weight;    ///< hidden
  void* newResidual;     ///< rows x hidden
  void* normalised;      ///< rows x hidden
};

enum class FusedPattern { OneShot, TwoShot };

/// The launch of the fused kernel where it is not chosen for the rows.
struct FusedShape {
  int blocks;   ///< at most; 0: as many as are resident at once
  int threads;  ///< of a block; 0: as AllReduceRmsNorm::shapeFor() chooses
};

/// AllReduceRmsNorm over the ranks of a communicator.
class FusedNorm {
 public:
  virtual ~FusedNorm() = default;
  virtual void enqueue(const Norm& norm, cudaStream_t stream) const = 0;
  /// Throws if a wait has failed. After the stream has been synchronised.
  virtual void check() const = 0;
};
/// Collective. maxElements: rows x hidden of the longest call.
std::unique_ptr<FusedNorm> makeFusedNorm(Communicator& communicator, FusedPattern pattern, std::size_t maxElements,
                                         const FusedShape& shape);

/// Residual and RMSNorm of rows that have been reduced: a block for each row, which is read and written once.
void enqueueSeparateNorm(const Norm& norm, cudaStream_t stream);

}  // namespace mscclpp::fusionbench
