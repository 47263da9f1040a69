// Matrix multiplications of cuBLAS, which is loaded at run time: the library neither requires nor ships it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::kernels {

/// Matrix multiplications on the current GPU, accumulated in fp32 and rounded to bf16. Calls must not overlap in time.
class Cublas {
 public:
  /// Of fp8: element (r, c) of a product is multiplied by input[r] * weight[c] before it is rounded.
  struct Scales {
    const float* input;
    const float* weight;
  };

  /// library: a path, or empty to search the loader's path, for bf16 libcublas.so.13 and .12, for fp8 libcublasLt.so.13
  /// and .12. operands: the type of inputs and weights, BFLOAT16 or FLOAT8_E4M3FN. fastAccumulation: that of a
  /// GemmLayer, for fp8. Throws Error(InvalidUsage) if there is no such library, or if it does not multiply fp8 with
  /// scales on this GPU: that takes CUDA 12.9 and a Hopper GPU.
  explicit Cublas(const std::string& library, DataType operands = DataType::BFLOAT16, bool fastAccumulation = false);

  DataType operands() const { return operands_; }

  /// Of fp8: searches for the algorithm of calls with these sizes, as their first one would. Throws Error(InvalidUsage)
  /// if there is none.
  void prepare(std::size_t rows, std::size_t width, std::size_t depth) const;

  /// Enqueues output = input * transpose of weight: rows x depth, width x depth, and rows x width, row-major. Throws
  /// Error if cuBLAS cannot do it.
  ///
  /// Of fp8 it takes both scales. The first call with some sizes searches for an algorithm. For a width or depth that
  /// is not a multiple of 16, and for arrays that are not at multiples of 16 bytes, it allocates memory of the stream
  /// and copies: a graph of it can have one instance at a time.
  void multiply(const void* input, const void* weight, void* output, std::size_t rows, std::size_t width,
                std::size_t depth, cudaStream_t stream, Scales scales = {}) const;

 private:
  class Bf16;
  class Fp8;
  DataType operands_;
  std::shared_ptr<Bf16> bf16_;  ///< null if the operands are fp8
  std::shared_ptr<Fp8> fp8_;    ///< null if they are bf16
};

}  // namespace mscclpp::kernels
