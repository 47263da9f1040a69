// A GEMM of cuBLAS and a compiled collective, one after the other: what a FusedGemm runs where fusing does not pay.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/gemm/cublas.hpp"
#include "kernels/gemm/shared_cublas.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::kernels {

class SerialGemm {
 public:
  /// Null where no cuBLAS is found that multiplies the operands. shared: whose Cublas it uses; null: one of its own.
  static std::unique_ptr<SerialGemm> make(std::shared_ptr<Collectives> collectives, const GemmLayer& layer, int ranks,
                                          SharedCublas* shared);

  /// Before the first call: allocates what lies between the two kernels of calls of up to so many rows.
  void allocate(std::size_t rows);

  /// The call has rows that serialGemmAccepts() (kernels/gemm/form_choice.hpp), and the norm that normOf() returns
  /// (kernels/gemm/fused_gemm.hpp) if there is one.
  void run(const FusedGemmCall& call) const;
  void check() const { collectives_->check(); }
  std::shared_ptr<const Cublas> cublas() const { return cublas_; }

 private:
  SerialGemm(std::shared_ptr<const Cublas> cublas, std::shared_ptr<Collectives> collectives, const GemmLayer& layer,
             int ranks);

  std::shared_ptr<const Cublas> cublas_;
  std::shared_ptr<Collectives> collectives_;
  GemmLayer layer_;
  std::size_t ranks_;
  mscclpp::detail::UniqueGpuPtr<std::byte> between_;  ///< the product of all rows, or their gathered inputs
  mscclpp::detail::UniqueGpuPtr<float> scales_;       ///< of gathered inputs of fp8; null: of others
};

}  // namespace mscclpp::kernels
