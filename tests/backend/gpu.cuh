// The GPU backend of the device tests: one process, with the ranks distributed round-robin over all GPUs.
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/sync/window.hpp"
#include "shape.hpp"

namespace mscclpp::test {

// Set before the driver starts: a separate queue per stream, since the kernels of all ranks wait for each other.
inline const int deviceConnections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

inline void checkCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// The number of GPUs in use, each of which can access the memory of the others.
inline int gpuCount() {
  static const int count = [] {
    int found = 0;
    checkCuda(cudaGetDeviceCount(&found), "cudaGetDeviceCount");
    for (int a = 0; a < found; ++a) {
      for (int b = 0; b < found; ++b) {
        int canAccess = a == b;
        if (a != b) checkCuda(cudaDeviceCanAccessPeer(&canAccess, a, b), "cudaDeviceCanAccessPeer");
        if (!canAccess) return 1;
      }
    }
    for (int a = 0; a < found; ++a) {
      checkCuda(cudaSetDevice(a), "cudaSetDevice");
      for (int b = 0; b < found; ++b) {
        if (a != b) checkCuda(cudaDeviceEnablePeerAccess(b, 0), "cudaDeviceEnablePeerAccess");
      }
    }
    return found;
  }();
  return count;
}

inline void setDeviceOfRank(int rank) {
  const int gpus = gpuCount();
  checkCuda(cudaSetDevice(rank % gpus), "cudaSetDevice");
}

/// Buffers of the same size, one per rank, in the memory of the rank's GPU.
class GpuBuffers {
 public:
  GpuBuffers(int ranks, std::size_t bytes, int initialByte) : bytes_(bytes) {
    for (int rank = 0; rank < ranks; ++rank) {
      setDeviceOfRank(rank);
      void* buffer = nullptr;
      checkCuda(cudaMalloc(&buffer, bytes == 0 ? 1 : bytes), "cudaMalloc");
      buffers_.push_back(buffer);
      checkCuda(cudaMemset(buffer, initialByte, bytes), "cudaMemset");
      checkCuda(cudaDeviceSynchronize(), "cudaMemset");
    }
  }
  ~GpuBuffers() {
    for (void* buffer : buffers_) cudaFree(buffer);
  }
  GpuBuffers(const GpuBuffers&) = delete;
  GpuBuffers& operator=(const GpuBuffers&) = delete;

  Window<> window() const {
    Window<> result{};
    for (std::size_t r = 0; r < buffers_.size(); ++r) result.base[r] = static_cast<std::byte*>(buffers_[r]);
    return result;
  }
  void write(int rank, const void* from, std::size_t bytes, std::size_t offset = 0) {
    setDeviceOfRank(rank);
    checkCuda(cudaMemcpy(static_cast<std::byte*>(buffers_[rank]) + offset, from, bytes, cudaMemcpyDefault),
              "cudaMemcpy");
    checkCuda(cudaDeviceSynchronize(), "cudaMemcpy");
  }
  template <class T>
  void write(int rank, const std::vector<T>& from, std::size_t offset = 0) {
    write(rank, from.data(), from.size() * sizeof(T), offset);
  }
  template <class T = std::byte>
  std::vector<T> read(int rank) const {
    setDeviceOfRank(rank);
    std::vector<T> to(bytes_ / sizeof(T));
    checkCuda(cudaMemcpy(to.data(), buffers_[rank], to.size() * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
    return to;
  }

 private:
  std::size_t bytes_;
  std::vector<void*> buffers_;
};

template <class Body>
__global__ void bodyKernel(int rank, const __grid_constant__ Body body) {
  body(rank, gpu::Grid());
}

/// A non-blocking stream per rank, so that the kernels of all ranks run concurrently.
class GpuStreams {
 public:
  explicit GpuStreams(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      setDeviceOfRank(rank);
      checkCuda(cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }
  ~GpuStreams() {
    for (auto stream : streams_) cudaStreamDestroy(stream);
  }
  GpuStreams(const GpuStreams&) = delete;
  GpuStreams& operator=(const GpuStreams&) = delete;
  cudaStream_t operator[](int rank) const { return streams_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<cudaStream_t> streams_;
};

/// The kernels of all ranks must be resident on the GPUs at the same time: keep shapes small.
class GpuBackend {
 public:
  static constexpr bool onGpu = true;
  static constexpr int warpWidth = 32;

  GpuBackend() : control_(controls().take()) { gpuCount(); }
  ~GpuBackend() { controls().giveBack(control_); }
  GpuBackend(const GpuBackend&) = delete;
  GpuBackend& operator=(const GpuBackend&) = delete;

  GpuBuffers allocate(int ranks, std::size_t bytes, int initialByte) const { return {ranks, bytes, initialByte}; }

  BoundedWait wait(std::uint64_t timeout = waitTimeout) { return {control_, timeout}; }
  WaitControl* control() { return control_; }

  template <class Body, class HostTask>
  std::optional<WaitRecord> run(const Shape& shape, const Body& body, const HostTask& hostTask) {
    // Loading a kernel may wait for running ones, which wait for it: so load it on all GPUs first.
    for (int rank = 0; rank < shape.ranks; ++rank) {
      setDeviceOfRank(rank);
      cudaFuncAttributes attributes;
      checkCuda(cudaFuncGetAttributes(&attributes, bodyKernel<Body>), "cudaFuncGetAttributes");
      checkCuda(cudaFuncSetAttribute(bodyKernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.sharedBytes)),
                "cudaFuncSetAttribute");
    }
    const GpuStreams streams(shape.ranks);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      setDeviceOfRank(rank);
      bodyKernel<<<shape.blocks, shape.warps * warpWidth, shape.sharedBytes, streams[rank]>>>(rank, body);
      checkCuda(cudaGetLastError(), "launch");
    }
    hostTask(*control_);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      setDeviceOfRank(rank);
      checkCuda(cudaStreamSynchronize(streams[rank]), "kernel");
    }
    checkCuda(cudaGetLastError(), "kernel");
    const WaitRecord record = control_->record;
    const bool expired = control_->expired != 0;
    *control_ = {};
    return expired ? std::optional(record) : std::nullopt;
  }
  template <class Body>
  std::optional<WaitRecord> run(const Shape& shape, const Body& body) {
    return run(shape, body, [](WaitControl&) {});
  }

  template <class Body>
  void launch(const Shape& shape, const Body& body) {
    if (const auto record = run(shape, body)) throw std::runtime_error(describe(*record));
  }

 private:
  /// Host memory that kernels access, for the next backend: to allocate and to free it takes longer than a small test.
  class Controls {
   public:
    WaitControl* take() {
      if (free_.empty()) {
        void* memory = nullptr;
        checkCuda(cudaHostAlloc(&memory, sizeof(WaitControl), cudaHostAllocMapped | cudaHostAllocPortable),
                  "cudaHostAlloc");
        return new (memory) WaitControl{};
      }
      WaitControl* const control = free_.back();
      free_.pop_back();
      *control = {};
      return control;
    }
    void giveBack(WaitControl* control) { free_.push_back(control); }

   private:
    std::vector<WaitControl*> free_;
  };
  static Controls& controls() {
    static Controls all;  // lives as long as the process
    return all;
  }

  WaitControl* control_;
};

}  // namespace mscclpp::test
