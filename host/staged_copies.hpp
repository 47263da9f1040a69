// Copies between the host and one GPU through pinned memory, in order: what a transport without GPU access needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace mscclpp::detail {

/// A stream and a ring of pinned chunks. One thread at a time. Everything throws CudaError or CuError if the GPU
/// failed, and Error(Timeout) if it does not move for long.
class StagedCopies {
 public:
  virtual ~StagedCopies() = default;

  virtual int gpu() const noexcept = 0;

  // Towards the GPU.
  /// Where to put the next bytes: at least one, at most a chunk. Waits for the copy that used the chunk before.
  virtual std::span<char> room() = 0;
  /// Starts to copy the first `bytes` bytes of room() to `target`.
  virtual void toGpu(void* target, std::size_t bytes) = 0;
  /// Sets an 8-byte word after everything before has arrived.
  virtual void setWord(void* target, std::uint64_t value) = 0;
  /// Remembers what has been started so far; one mark at a time. reached() tells, without waiting, whether that has
  /// arrived, whatever was started since.
  virtual void mark() = 0;
  virtual bool reached() = 0;
  /// Waits until everything has arrived.
  virtual void finish() = 0;

  // From the GPU.
  /// Calls `take` with the bytes of [source, source + bytes), piece by piece and in order, while the pieces after the
  /// one at hand are being copied. Done with the source when it returns.
  virtual void fromGpu(const void* source, std::size_t bytes,
                       const std::function<void(const char* piece, std::size_t size)>& take) = 0;
};

/// Throws Error(InvalidUsage) in a build without CUDA.
std::unique_ptr<StagedCopies> makeStagedCopies(int gpu);

}  // namespace mscclpp::detail
