// An all-gather by the copy engines beside a GEMM of cuBLAS that needs none of it, and then the GEMM of what it brings.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/gpu/cublas.hpp"
#include "kernels/gpu/side_stream.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/kernels/copy_engine_mover.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

/// The calls of an all-gather in GemmForm::Overlapped: this rank's rows are multiplied while the copy engines bring
/// those of the others, which are multiplied then. No multiprocessor moves data, but the GEMM is in two parts, or three
/// where other ranks have rows before and after this one's.
class OverlappedGather {
 public:
  /// Collective: with the same sizes on all ranks, for calls of up to maxRows rows. Throws what CopyEngineMover and
  /// SymmetricMemory throw.
  OverlappedGather(Communicator& communicator, std::shared_ptr<const Cublas> cublas, std::size_t maxRows,
                   std::size_t depth);

  /// The call has rows that formsOf() lets it have (kernels/fused_gemm_choice.hpp). Enqueues it; graphs can capture it.
  /// Throws, as CopyEngineMover does, also what check() throws.
  void run(const FusedGemmCall& call);
  void check() const { mover_.check(); }

 private:
  std::size_t rank_, ranks_;
  std::shared_ptr<const Cublas> cublas_;
  SymmetricMemory gathered_;
  CopyEngineMover mover_;
  SideStream copies_;
};

}  // namespace mscclpp::kernels
