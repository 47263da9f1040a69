// MSCCL++'s pool of streams: a returned stream is the next one to be reused.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp {

class GpuStreamPool;

/// A stream borrowed from a pool; it returns to the pool with its last owner. Movable.
class GpuStream {
 public:
  GpuStream(std::shared_ptr<GpuStreamPool> pool, std::shared_ptr<CudaStreamWithFlags> stream)
      : pool_(std::move(pool)), stream_(std::move(stream)) {}
  GpuStream(GpuStream&&) noexcept = default;
  GpuStream& operator=(GpuStream&&) = delete;
  inline ~GpuStream();

  operator cudaStream_t() const { return *stream_; }  // NOLINT: implicit, so that it can be used as a stream
  int deviceId() const { return stream_->deviceId(); }

 private:
  std::shared_ptr<GpuStreamPool> pool_;
  std::shared_ptr<CudaStreamWithFlags> stream_;
};

/// Non-blocking streams: per device as many as were in use at once. Thread-safe.
class GpuStreamPool : public std::enable_shared_from_this<GpuStreamPool> {
 public:
  /// A stream of the current device.
  GpuStream getStream() {
    int device = -1;
    MSCCLPP_CUDATHROW(cudaGetDevice(&device));
    std::lock_guard lock(mutex_);
    auto& idle = idle_[device];
    if (idle.empty()) idle.push_back(std::make_shared<CudaStreamWithFlags>(cudaStreamNonBlocking));
    auto stream = std::move(idle.back());
    idle.pop_back();
    return {shared_from_this(), std::move(stream)};
  }
  /// Destroys the streams that are not in use.
  void clear() {
    std::lock_guard lock(mutex_);
    idle_.clear();
  }

 private:
  friend class GpuStream;
  std::mutex mutex_;
  std::map<int, std::vector<std::shared_ptr<CudaStreamWithFlags>>> idle_;
};

inline GpuStream::~GpuStream() {
  if (!pool_) return;
  std::lock_guard lock(pool_->mutex_);
  pool_->idle_[stream_->deviceId()].push_back(std::move(stream_));
}

/// The pool of the process. It is never destroyed: the CUDA runtime may be unloaded before static objects are
/// destroyed.
inline std::shared_ptr<GpuStreamPool> gpuStreamPool() {
  static const auto* pool = new std::shared_ptr<GpuStreamPool>(std::make_shared<GpuStreamPool>());
  return *pool;
}

}  // namespace mscclpp
