// GPU ranks for the client of NCCL's C API: device r is rank r's.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "tests/nccl/client_cases.hpp"

namespace mscclpp::test {

inline void requireCuda(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

/// The ranks of a test: one for each GPU, at most 8.
inline int gpuRanks() {
  int count = 0;
  requireCuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return std::min(count, 8);
}

struct GpuClient {
  class Memory {
   public:
    explicit Memory(const Bytes& bytes) : bytes_(bytes.size()) {
      void* data = nullptr;
      requireCuda(cudaMalloc(&data, bytes.empty() ? 1 : bytes.size()), "cudaMalloc");
      data_ = {data, [](void* memory) { static_cast<void>(cudaFree(memory)); }};
      requireCuda(cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
      // cudaMemcpy from pageable memory may return before the bytes have arrived, and calls are on other streams.
      requireCuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
    unsigned char* data() { return static_cast<unsigned char*>(data_.get()); }
    Bytes read() const { return readFrom(data_.get(), bytes_); }
    static Bytes readFrom(const void* data, std::size_t bytes) {
      Bytes result(bytes);
      requireCuda(cudaMemcpy(result.data(), data, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      return result;
    }

   private:
    std::shared_ptr<void> data_;
    std::size_t bytes_;
  };

  class Stream {
   public:
    Stream() {
      cudaStream_t stream = nullptr;
      requireCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      stream_ = {stream, [](cudaStream_t s) { static_cast<void>(cudaStreamDestroy(s)); }};
    }
    cudaStream_t get() const { return stream_.get(); }
    void synchronize() const { requireCuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }
    /// What is enqueued here from now on begins after all that is in `other` now.
    void waitFor(const Stream& other) const {
      cudaEvent_t reached = nullptr;
      requireCuda(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming), "cudaEventCreate");
      const std::unique_ptr<CUevent_st, decltype(&cudaEventDestroy)> owner(reached, &cudaEventDestroy);
      requireCuda(cudaEventRecord(reached, other.get()), "cudaEventRecord");
      requireCuda(cudaStreamWaitEvent(get(), reached), "cudaStreamWaitEvent");
    }

   private:
    std::shared_ptr<CUstream_st> stream_;
  };

  static void setDevice(int rank) { requireCuda(cudaSetDevice(rank), "cudaSetDevice"); }
};

}  // namespace mscclpp::test
