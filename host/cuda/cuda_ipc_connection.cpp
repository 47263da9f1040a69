// Connections between GPUs of one machine: copy engines move the data, and a command of the stream stores the counter behind it.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "../gpu_backend.hpp"
#include "driver.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu.hpp"
#include "mscclpp/host/gpu_guard.hpp"

namespace mscclpp::detail {

namespace {

/// A place in a stream.
class Mark {
 public:
  Mark() { MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Mark(Mark&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Mark& operator=(Mark&&) = delete;
  ~Mark() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }
  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream that goes before others of its device: who waits for what it carries waits with a kernel.
class CopyStream {
 public:
  CopyStream() {
    int least = 0;
    int greatest = 0;
    MSCCLPP_CUDATHROW(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MSCCLPP_CUDATHROW(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  }
  CopyStream(CopyStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  CopyStream& operator=(CopyStream&&) = delete;
  ~CopyStream() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A stream of its own orders the operations. Streams and the like are made at the first use: most connections only carry the channels of kernels.
class CudaIpcConnection : public ConnectionBase {
 public:
  using ConnectionBase::ConnectionBase;

  /// The stream is asked only when somebody wants to know: an event marks what is issued by then, one at a time.
  std::uint64_t completed() override {
    if (completed_ == issued()) return completed_;
    const Use use(*this);
    storeHeld();
    AvoidCudaGraphCaptureGuard captureGuard;
    if (marked_ == completed_) {
      if (!mark_) mark_.emplace();
      MSCCLPP_CUDATHROW(cudaEventRecord(mark_->get(), stream_));
      marked_ = issued();
    }
    const cudaError_t state = cudaEventQuery(mark_->get());
    if (state == cudaSuccess) {
      completed_ = marked_;
    } else if (state != cudaErrorNotReady) {
      MSCCLPP_CUDATHROW(state);
    }
    return completed_;
  }

  bool writesValues() const override { return true; }

  /// Stores are held back in between, for one call to the driver instead of many. A copy starts them, and goes by itself.
  void beginBatch() override { holding_ = true; }
  void endBatch() override {
    holding_ = false;
    if (held_.empty()) return;
    const Use use(*this);
    storeHeld();
  }

  bool storeWhenComplete(std::uint64_t* word, std::uint64_t value) override {
    const Use use(*this);
    writeValue(reinterpret_cast<CUdeviceptr>(word), value);
    return true;
  }

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override {
    const Use use(*this);
    storeHeld();
    const auto to = reinterpret_cast<CUdeviceptr>(dst.data()) + dstOffset;
    const auto from = reinterpret_cast<CUdeviceptr>(src.data()) + srcOffset;
    const std::uint64_t parts =
        std::min<std::uint64_t>(sides_.size() + 1, size / local().config().cudaIpc.bytesPerStream);
    if (parts < 2) {
      copy(to, from, size, stream_);
    } else {
      copyInParts(to, from, size, parts);
    }
  }

  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                   std::uint64_t newValue) override {
    const Use use(*this);
    writeValue(reinterpret_cast<CUdeviceptr>(dst.data()) + dstOffset, newValue);
  }

 private:
  /// What helps the main stream with large copies.
  struct Side {
    CopyStream stream;
    Mark done;
  };

  /// The connection's GPU for the length of a call, with all that a call needs in place.
  class Use {
   public:
    explicit Use(CudaIpcConnection& connection) : device_(connection.local().device().id) {
      if (connection.driver_ == nullptr) connection.prepare();
      // The default stream may be one that somebody captures.
      if (connection.stream_ == nullptr) capture_.emplace();
    }

   private:
    CudaDeviceGuard device_;
    std::optional<AvoidCudaGraphCaptureGuard> capture_;
  };

  void prepare() {
    AvoidCudaGraphCaptureGuard captureGuard;
    if (!env()->cudaIpcUseDefaultStream) {
      own_.emplace();
      stream_ = own_->get();
      for (int i = 1; i < local().config().cudaIpc.streams; ++i) sides_.emplace_back();
      if (!sides_.empty()) begin_.emplace();
    }
    driver_ = &driver();
  }

  // The driver's calls do without the runtime's look at the pointers' kinds.
  void copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t size, cudaStream_t stream) const {
    MSCCLPP_CUTHROW(driver_->memcpyAsync(to, from, size, stream));
  }

  // The value travels in the command, so it may change again at once; the default flags fence the earlier copies.
  void writeValue(CUdeviceptr address, std::uint64_t value) {
    constexpr std::size_t mostHeld = 64;  // the driver takes 256 at once
    if (!holding_) {
      MSCCLPP_CUTHROW(driver_->streamWriteValue64(stream_, address, value, CU_STREAM_WRITE_VALUE_DEFAULT));
      return;
    }
    CUstreamBatchMemOpParams store{};
    store.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    store.writeValue.address = address;
    store.writeValue.value64 = value;
    store.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    held_.push_back(store);
    if (held_.size() == mostHeld) storeHeld();
  }

  void storeHeld() {
    if (held_.empty()) return;
    const auto count = static_cast<unsigned int>(held_.size());
    MSCCLPP_CUTHROW(driver_->streamBatchMemOp(stream_, count, held_.data(), 0));
    held_.clear();
  }

  /// The side streams start where the main stream is now, and it goes on when they are done.
  void copyInParts(CUdeviceptr to, CUdeviceptr from, std::uint64_t size, std::uint64_t parts) {
    constexpr std::uint64_t alignment = 4096;
    const std::uint64_t part = size / parts / alignment * alignment;
    MSCCLPP_CUDATHROW(cudaEventRecord(begin_->get(), stream_));
    const std::uint64_t first = size - (parts - 1) * part;
    copy(to, from, first, stream_);
    for (std::uint64_t i = 1; i < parts; ++i) {
      const Side& side = sides_[i - 1];
      const std::uint64_t at = first + (i - 1) * part;
      MSCCLPP_CUDATHROW(cudaStreamWaitEvent(side.stream.get(), begin_->get(), 0));
      copy(to + at, from + at, part, side.stream.get());
      MSCCLPP_CUDATHROW(cudaEventRecord(side.done.get(), side.stream.get()));
      MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream_, side.done.get(), 0));
    }
  }

  const Driver* driver_ = nullptr;  // null: nothing is in place yet
  std::optional<CopyStream> own_;
  cudaStream_t stream_ = nullptr;
  std::vector<Side> sides_;
  std::optional<Mark> begin_;
  bool holding_ = false;
  std::vector<CUstreamBatchMemOpParams> held_;
  std::optional<Mark> mark_;
  std::uint64_t marked_ = 0;  // what the mark stands for
  std::uint64_t completed_ = 0;
};

}  // namespace

std::shared_ptr<ConnectionBase> connectCudaIpc(std::shared_ptr<Context> context, const Endpoint& local,
                                               const Endpoint& remote) {
  const auto& config = local.config().cudaIpc;
  if (config.streams < 1 || config.streams > 16 || config.bytesPerStream == 0) {
    throw Error("EndpointConfig::cudaIpc: streams must be from 1 to 16, and bytesPerStream positive",
                ErrorCode::InvalidUsage);
  }
  return std::make_shared<CudaIpcConnection>(std::move(context), local, remote);
}

}  // namespace mscclpp::detail
