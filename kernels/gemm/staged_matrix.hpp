// A matrix that TMA and cuBLASLt can access: the caller's array, or for a call a copy of it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

struct MatrixSize {
  std::size_t rows, columns;
};

/// What a kernel does with a matrix.
enum class Staging { Input, Output };

/// A row-major array without gaps, of elements of `elementBytes` bytes, as one of size `to` (at least its own, with
/// rows of a multiple of 16 bytes if there are several) that begins at a multiple of 16 bytes: itself, or a copy in
/// memory of the stream, which is freed in stream order. What the copy of an input has more is zero. Graphs can capture
/// it, but one with such memory can have one instance at a time.
class StagedMatrix {
 public:
  StagedMatrix(Staging staging, const void* array, MatrixSize size, MatrixSize to, std::size_t elementBytes,
               cudaStream_t stream)
      : array_(const_cast<void*>(array)),
        pitch_(to.columns * elementBytes),
        rowBytes_(size.columns * elementBytes),
        rows_(size.rows),
        stream_(stream) {
    constexpr std::uintptr_t alignment = 16;
    const bool isPadded = to.columns != size.columns || to.rows != size.rows;
    if (!isPadded && reinterpret_cast<std::uintptr_t>(array) % alignment == 0) return;
    const std::size_t bytes = to.rows * pitch_;
    void* memory = nullptr;
    MSCCLPP_CUDATHROW(cudaMallocAsync(&memory, bytes, stream));
    copy_ = {memory, [stream](void* allocated) { cudaFreeAsync(allocated, stream); }};
    if (staging == Staging::Output) return;
    if (isPadded) MSCCLPP_CUDATHROW(cudaMemsetAsync(memory, 0, bytes, stream));
    MSCCLPP_CUDATHROW(
        cudaMemcpy2DAsync(memory, pitch_, array_, rowBytes_, rowBytes_, rows_, cudaMemcpyDeviceToDevice, stream));
  }
  StagedMatrix(const StagedMatrix&) = delete;
  StagedMatrix& operator=(const StagedMatrix&) = delete;

  void* data() const { return copy_ != nullptr ? copy_.get() : array_; }
  /// Of an output, after what writes it has been enqueued.
  void copyBack() const {
    if (copy_ == nullptr) return;
    MSCCLPP_CUDATHROW(
        cudaMemcpy2DAsync(array_, rowBytes_, copy_.get(), pitch_, rowBytes_, rows_, cudaMemcpyDeviceToDevice, stream_));
  }

 private:
  void* const array_;
  std::shared_ptr<void> copy_;  ///< null: none
  const std::size_t pitch_, rowBytes_, rows_;
  const cudaStream_t stream_;
};

}  // namespace mscclpp::kernels
