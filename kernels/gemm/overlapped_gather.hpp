// An all-gather by the copy engines beside GEMMs of cuBLAS, of this rank's rows first, and then of what has arrived.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/gemm/cublas.hpp"
#include "kernels/gpu/copy_pipeline.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// The calls of an all-gather in GemmForm::Overlapped. No multiprocessor moves data, and no row is copied within a GPU,
/// but the GEMM is in parts: one of this rank's rows, and for each other rank as many as its rows are copied in.
class OverlappedGather {
 public:
  /// Collective: with the same sizes on all ranks, for calls of up to maxRows rows, of cublas's operands. monitor: of
  /// its waits; null: one of its own. Throws what CopyPipeline and SymmetricMemory throw.
  OverlappedGather(Communicator& communicator, std::shared_ptr<const Cublas> cublas, std::size_t maxRows,
                   std::size_t depth, std::shared_ptr<WaitMonitor> monitor = nullptr);

  /// The call has rows that formsOf() lets it have (kernels/gemm/form_choice.hpp). parts: of a rank's rows, at least
  /// one, the same on all ranks. Enqueues it; graphs can capture it. Throws, as CopyPipeline does, also what check()
  /// throws.
  void run(const FusedGemmCall& call, std::size_t parts);
  void check() const { pipeline_.check(); }

 private:
  std::size_t rank_, ranks_;
  std::shared_ptr<const Cublas> cublas_;
  std::size_t elementBytes_;  ///< of the operands
  std::size_t scalesStart_;   ///< bytes of gathered_, behind which are scales
  std::size_t scalePitch_;    ///< room for those of a rank's rows, at a multiple of 16 bytes; 0: of bf16
  SymmetricMemory gathered_;  ///< the rows of the other ranks, in rank order, and their scales
  CopyPipeline pipeline_;
};

}  // namespace mscclpp::kernels
