#include "../staged_copies.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "driver.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_guard.hpp"
#include "mscclpp/host/gpu_memory.hpp"

namespace mscclpp::detail {

namespace {

// Four pieces of a quarter of a megabyte keep both the copy engine and the network busy.
constexpr std::size_t chunkBytes = std::size_t{256} << 10;
constexpr std::size_t numChunks = 4;
// A copy takes microseconds. A GPU that does not finish one in this time never will.
constexpr std::chrono::seconds patience{30};

class CudaStagedCopies : public StagedCopies {
 public:
  explicit CudaStagedCopies(int gpu) : gpu_(gpu) {
    const Use use(gpu_);
    stream_.set(cudaStreamNonBlocking);
    memory_ = gpuCallocHostUnique<char>(numChunks * chunkBytes);
    for (auto* event : everyEvent()) MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  ~CudaStagedCopies() override {
    try {
      finish();
    } catch (const BaseError&) {  // the GPU failed, or the runtime is gone: nothing moves any more
    }
    for (auto* event : everyEvent()) {
      if (*event != nullptr) static_cast<void>(cudaEventDestroy(*event));
    }
  }

  int gpu() const noexcept override { return gpu_; }

  std::span<char> room() override {
    if (filled_ == 0) {
      const Use use(gpu_);
      awaitEvent(events_[current_]);
    }
    return {chunk(current_) + filled_, chunkBytes - filled_};
  }

  void toGpu(void* target, std::size_t bytes) override {
    const Use use(gpu_);
    MSCCLPP_CUDATHROW(cudaMemcpyAsync(target, chunk(current_) + filled_, bytes, cudaMemcpyHostToDevice, stream_));
    filled_ += bytes;
    // What is left of a chunk is not worth a read of its own.
    if (chunkBytes - filled_ < chunkBytes / 16) nextChunk();
  }

  void setWord(void* target, std::uint64_t value) override {
    const Use use(gpu_);
    // With the default flags it comes after all earlier copies of the stream, for whoever sees the word.
    MSCCLPP_CUTHROW(driver().streamWriteValue64(stream_, reinterpret_cast<CUdeviceptr>(target), value,
                                                CU_STREAM_WRITE_VALUE_DEFAULT));
  }

  void mark() override {
    const Use use(gpu_);
    MSCCLPP_CUDATHROW(cudaEventRecord(mark_, stream_));
  }
  bool reached() override {
    const Use use(gpu_);
    return isOver(cudaEventQuery(mark_));
  }

  void finish() override {
    const Use use(gpu_);
    await([this] { return isOver(cudaStreamQuery(stream_)); });
  }

  void fromGpu(const void* source, std::size_t bytes,
               const std::function<void(const char*, std::size_t)>& take) override {
    const Use use(gpu_);
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
        awaitEvent(events_[piece % numChunks]);
        take(chunk(piece % numChunks), sizeOf(piece));
        if (piece + numChunks < pieces) start(piece + numChunks);
      }
    } catch (...) {
      finish();  // the source belongs to the caller again
      throw;
    }
  }

 private:
  // The calls below are of the device, and legal while the thread captures a graph.
  struct Use {
    explicit Use(int gpu) : device(gpu) {}
    CudaDeviceGuard device;
    AvoidCudaGraphCaptureGuard capture;
  };

  char* chunk(std::size_t index) const { return memory_.get() + index * chunkBytes; }

  void nextChunk() {
    MSCCLPP_CUDATHROW(cudaEventRecord(events_[current_], stream_));
    current_ = (current_ + 1) % numChunks;
    filled_ = 0;
  }

  std::array<cudaEvent_t*, numChunks + 1> everyEvent() {
    static_assert(numChunks == 4);
    return {&events_[0], &events_[1], &events_[2], &events_[3], &mark_};
  }

  static bool isOver(cudaError_t state) {
    if (state == cudaErrorNotReady) return false;
    MSCCLPP_CUDATHROW(state);
    return true;
  }

  template <class Done>
  void await(Done done) {
    const auto start = std::chrono::steady_clock::now();
    while (!done()) {
      if (std::chrono::steady_clock::now() - start > patience) {
        throw Error("copies to or from GPU " + std::to_string(gpu_) + " do not complete", ErrorCode::Timeout);
      }
      std::this_thread::yield();
    }
  }

  void awaitEvent(cudaEvent_t event) {
    await([event] { return isOver(cudaEventQuery(event)); });
  }

  int gpu_;
  UniqueGpuHostPtr<char> memory_;
  std::array<cudaEvent_t, numChunks> events_{};
  cudaEvent_t mark_ = nullptr;
  CudaStreamWithFlags stream_;
  std::size_t current_ = 0;
  std::size_t filled_ = 0;  // of the current chunk
};

}  // namespace

std::unique_ptr<StagedCopies> makeStagedCopies(int gpu) {
  return std::make_unique<CudaStagedCopies>(gpu);
}

}  // namespace mscclpp::detail
