// cuBLAS as the baseline of a measurement, loaded at run time: this tool neither requires nor ships it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

namespace mscclpp::kernels {

/// Matrix multiplications of bf16, accumulated in fp32, on the current GPU.
class Cublas {
 public:
  /// library: a path, or empty to search libcublas.so.13 and .12 on the loader's path. Throws Error if there is none.
  explicit Cublas(const std::string& library);

  /// Enqueues output = input * transpose of weight: rows x depth, width x depth, and rows x width, row-major.
  void multiply(const void* input, const void* weight, void* output, std::size_t rows, std::size_t width,
                std::size_t depth, cudaStream_t stream) const;

 private:
  struct Library;
  std::shared_ptr<Library> library_;
  std::shared_ptr<void> handle_;
  std::shared_ptr<void> workspace_;
};

}  // namespace mscclpp::kernels
