// GPU memory that peers can map; GPU ranks communicate through it.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp {

/// What the size is rounded up to if multicast may be used, so that a multicast object can map the buffer.
enum class GpuBufferGranularity { MultiCastMinimum, MultiCastRecommended };

namespace detail {
struct GpuAllocation {
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;
  int deviceId = -1;
};
/// Zero-filled memory of the current device, from cuMemCreate if it can be exported as a POSIX descriptor, otherwise
/// from cudaMalloc.
GpuAllocation allocateShareable(std::size_t bytes, GpuBufferGranularity granularity);
}  // namespace detail

/// Zero-filled memory of the device that is current at construction. Register it with Transport::CudaIpc to let the
/// ranks of this host map it.
template <typename T = char>
class GpuBuffer {
 public:
  /// An empty buffer for 0 elements. Throws CuError or CudaError if there is not enough memory.
  explicit GpuBuffer(std::size_t nelems, GpuBufferGranularity granularity = GpuBufferGranularity::MultiCastMinimum)
      : nelems_(nelems), allocation_(detail::allocateShareable(detail::bytesOf(nelems, sizeof(T)), granularity)) {}

  /// As requested.
  std::size_t nelems() const noexcept { return nelems_; }
  /// As allocated: at least nelems() * sizeof(T).
  std::size_t bytes() const noexcept { return allocation_.bytes; }
  std::shared_ptr<T> memory() const noexcept { return std::static_pointer_cast<T>(allocation_.memory); }
  /// Null if empty.
  T* data() const noexcept { return static_cast<T*>(allocation_.memory.get()); }
  /// -1 if empty.
  int deviceId() const noexcept { return allocation_.deviceId; }

 private:
  std::size_t nelems_;
  detail::GpuAllocation allocation_;
};

}  // namespace mscclpp
