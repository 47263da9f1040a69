// Copies between the host and one GPU through pinned memory, in order: for transports that cannot access GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace mscclpp::detail {

/// A stream and a ring of pinned chunks. Used by one thread at a time. All functions throw CudaError or CuError if the
/// GPU failed, and Error(Timeout) if a copy does not finish.
class StagingCopier {
 public:
  virtual ~StagingCopier() = default;

  virtual int gpu() const noexcept = 0;

  // To the GPU.
  /// The buffer for the next bytes: at least one, at most a chunk. Waits for the previous copy from that chunk.
  virtual std::span<char> stagingBuffer() = 0;
  /// Starts copying the first `bytes` bytes of stagingBuffer() to `target`.
  virtual void copyToGpu(void* target, std::size_t bytes) = 0;
  /// Sets an 8-byte word after everything before has arrived.
  virtual void storeWord(void* target, std::uint64_t value) = 0;
  /// Records an event after the operations started so far; one at a time. isEventComplete() returns, without blocking,
  /// whether these have completed, whatever was started since.
  virtual void recordEvent() = 0;
  virtual bool isEventComplete() = 0;
  /// Waits until everything has arrived.
  virtual void synchronize() = 0;

  // From the GPU.
  /// Calls `take` with the bytes of [source, source + bytes), chunk by chunk and in order, while the following chunks
  /// are being copied. The source may be reused on return.
  virtual void copyFromGpu(const void* source, std::size_t bytes,
                           const std::function<void(const char* piece, std::size_t size)>& take) = 0;
};

/// Throws Error(InvalidUsage) in a build without CUDA.
std::unique_ptr<StagingCopier> makeStagingCopier(int gpu);

}  // namespace mscclpp::detail
