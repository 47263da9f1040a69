#include "host/cuda/staging_copier.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "host/base/deadline.hpp"
#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp::detail {

namespace {

// Four chunks of 256 KiB keep both the copy engine and the network busy.
constexpr std::size_t chunkBytes = std::size_t{256} << 10;
constexpr std::size_t numChunks = 4;
// A copy takes microseconds. A GPU that does not finish one in this time never will.
constexpr std::chrono::seconds copyTimeout{30};

class CudaStagingCopier : public StagingCopier {
 public:
  explicit CudaStagingCopier(int gpu) : gpu_(gpu) {
    const DeviceScope scope(gpu_);
    stream_.set(cudaStreamNonBlocking);
    memory_ = gpuCallocHostUnique<char>(numChunks * chunkBytes);
    for (auto* event : allEvents()) MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  ~CudaStagingCopier() override {
    if (!isGpuOwner()) return;
    try {
      synchronize();
    } catch (const BaseError&) {  // the GPU failed, or the runtime is unloaded: no copy is running
    }
    for (auto* event : allEvents()) {
      if (*event != nullptr) static_cast<void>(cudaEventDestroy(*event));
    }
  }

  int gpu() const noexcept override { return gpu_; }

  std::span<char> stagingBuffer() override {
    if (filled_ == 0) {
      const DeviceScope scope(gpu_);
      waitForEvent(events_[current_]);
    }
    return {chunk(current_) + filled_, chunkBytes - filled_};
  }

  void copyToGpu(void* target, std::size_t bytes) override {
    const DeviceScope scope(gpu_);
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(target, chunk(current_) + filled_, bytes, cudaMemcpyHostToDevice, stream_));
    filled_ += bytes;
    // The rest of a chunk is too small for a read of its own.
    if (chunkBytes - filled_ < chunkBytes / 16) nextChunk();
  }

  void storeWord(void* target, std::uint64_t value) override {
    const DeviceScope scope(gpu_);
    // With the default flags it is ordered after all earlier copies of the stream, for any thread that reads the word.
    MSCCLPP_CUTHROW(driver().streamWriteValue64(stream_, reinterpret_cast<CUdeviceptr>(target), value,
                                                CU_STREAM_WRITE_VALUE_DEFAULT));
  }

  void recordEvent() override {
    const DeviceScope scope(gpu_);
    MSCCLPP_CUDATHROW(cudaEventRecord(event_, stream_));
  }
  bool isEventComplete() override {
    const DeviceScope scope(gpu_);
    return isComplete(cudaEventQuery(event_));
  }

  void synchronize() override {
    const DeviceScope scope(gpu_);
    waitUntil([this] { return isComplete(cudaStreamQuery(stream_)); });
  }

  void copyFromGpu(const void* source, std::size_t bytes,
                   const std::function<void(const char*, std::size_t)>& take) override {
    const DeviceScope scope(gpu_);
    const auto* from = static_cast<const char*>(source);
    const std::size_t pieces = bytes / chunkBytes + (bytes % chunkBytes == 0 ? 0 : 1);
    const auto sizeOf = [&](std::size_t piece) { return std::min(chunkBytes, bytes - piece * chunkBytes); };
    const auto start = [&](std::size_t piece) {
      MSCCLPP_CUDATHROW(cudaMemcpyAsync(chunk(piece % numChunks), from + piece * chunkBytes, sizeOf(piece),
                                        cudaMemcpyDeviceToHost, stream_));
      MSCCLPP_CUDATHROW(cudaEventRecord(events_[piece % numChunks], stream_));
    };
    try {
      for (std::size_t piece = 0; piece < std::min(pieces, numChunks); ++piece) start(piece);
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        waitForEvent(events_[piece % numChunks]);
        take(chunk(piece % numChunks), sizeOf(piece));
        if (piece + numChunks < pieces) start(piece + numChunks);
      }
    } catch (...) {
      synchronize();  // the caller may then reuse the source
      throw;
    }
  }

 private:
  // The calls below concern the device, and are legal while the thread captures a graph.
  struct DeviceScope {
    explicit DeviceScope(int gpu) : device(gpu) {}
    CudaDeviceGuard device;
    AvoidCudaGraphCaptureGuard capture;
  };

  char* chunk(std::size_t index) const { return memory_.get() + index * chunkBytes; }

  void nextChunk() {
    MSCCLPP_CUDATHROW(cudaEventRecord(events_[current_], stream_));
    current_ = (current_ + 1) % numChunks;
    filled_ = 0;
  }

  std::array<cudaEvent_t*, numChunks + 1> allEvents() {
    static_assert(numChunks == 4);
    return {&events_[0], &events_[1], &events_[2], &events_[3], &event_};
  }

  static bool isComplete(cudaError_t state) {
    if (state == cudaErrorNotReady) return false;
    MSCCLPP_CUDATHROW(state);
    return true;
  }

  template <class Done>
  void waitUntil(Done done) {
    const auto start = std::chrono::steady_clock::now();
    while (!done()) {
      if (std::chrono::steady_clock::now() - start > copyTimeout) {
        throw Error("copies to or from GPU " + std::to_string(gpu_) + " have not completed within " +
                        formatSeconds(copyTimeout),
                    ErrorCode::Timeout);
      }
      std::this_thread::yield();
    }
  }

  void waitForEvent(cudaEvent_t event) {
    waitUntil([event] { return isComplete(cudaEventQuery(event)); });
  }

  int gpu_;
  UniqueGpuHostPtr<char> memory_;
  std::array<cudaEvent_t, numChunks> events_{};
  cudaEvent_t event_ = nullptr;
  CudaStreamWithFlags stream_;
  std::size_t current_ = 0;
  std::size_t filled_ = 0;  // of the current chunk
};

}  // namespace

std::unique_ptr<StagingCopier> makeStagingCopier(int gpu) {
  return std::make_unique<CudaStagingCopier>(gpu);
}

}  // namespace mscclpp::detail
