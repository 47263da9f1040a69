// MSCCL++'s pool of streams: one that is given back is the next to be handed out.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mscclpp/host/gpu_guard.hpp"

namespace mscclpp {

class GpuStreamPool;

/// A stream on loan from a pool; it goes back with its last holder. Movable.
class GpuStream {
 public:
  GpuStream(std::shared_ptr<GpuStreamPool> pool, std::shared_ptr<CudaStreamWithFlags> stream)
      : pool_(std::move(pool)), stream_(std::move(stream)) {}
  GpuStream(GpuStream&&) noexcept = default;
  GpuStream& operator=(GpuStream&&) = delete;
  inline ~GpuStream();

  operator cudaStream_t() const { return *stream_; }  // NOLINT: implicit, so that it is used as a stream
  int deviceId() const { return stream_->deviceId(); }

 private:
  std::shared_ptr<GpuStreamPool> pool_;
  std::shared_ptr<CudaStreamWithFlags> stream_;
};

/// Non-blocking streams, of each device as many as were in use at one time. Any thread may use it.
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
  /// Destroys the streams that nobody has.
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

/// The pool of the process. It is never destroyed: when static objects are, the CUDA runtime may be gone.
inline std::shared_ptr<GpuStreamPool> gpuStreamPool() {
  static const auto* pool = new std::shared_ptr<GpuStreamPool>(std::make_shared<GpuStreamPool>());
  return *pool;
}

}  // namespace mscclpp
