// Connections between GPUs of one machine: copy engines transfer the data, and a stream command stores the counter
// afterwards.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "host/cuda/driver.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "host/transport/cuda_ipc/cuda_ipc.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"

namespace mscclpp::detail {

namespace {

/// A position in a stream.
class CudaEvent {
 public:
  CudaEvent() { MSCCLPP_CUDATHROW(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&&) = delete;
  ~CudaEvent() {
    if (event_ != nullptr && isGpuOwner()) static_cast<void>(cudaEventDestroy(event_));
  }
  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream of the highest priority: kernels wait for its operations.
class PriorityStream {
 public:
  PriorityStream() {
    int least = 0;
    int greatest = 0;
    MSCCLPP_CUDATHROW(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MSCCLPP_CUDATHROW(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  }
  PriorityStream(PriorityStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  PriorityStream& operator=(PriorityStream&&) = delete;
  ~PriorityStream() {
    if (stream_ != nullptr && isGpuOwner()) static_cast<void>(cudaStreamDestroy(stream_));
  }
  cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Each connection has a stream, which orders its operations. It is created at the first use: most connections are only
/// used by kernels, through channels.
class CudaIpcConnection : public ConnectionBase {
 public:
  using ConnectionBase::ConnectionBase;

  /// An event is recorded when completion is queried, one at a time; it covers all operations issued by then.
  std::uint64_t completed() override {
    if (completed_ == issued()) return completed_;
    const DeviceScope scope(*this);
    issuePendingStores();
    AvoidCudaGraphCaptureGuard captureGuard;
    if (recorded_ == completed_) {
      if (!event_) event_.emplace();
      MSCCLPP_CUDATHROW(cudaEventRecord(event_->get(), stream_));
      recorded_ = issued();
    }
    const cudaError_t state = cudaEventQuery(event_->get());
    if (state == cudaSuccess) {
      completed_ = recorded_;
    } else if (state != cudaErrorNotReady) {
      MSCCLPP_CUDATHROW(state);
    }
    return completed_;
  }

  bool supportsWriteValue() const override { return true; }

  /// Stores are buffered in between, for one driver call instead of many. A copy issues them first.
  void beginBatch() override { isBatching_ = true; }
  void endBatch() override {
    isBatching_ = false;
    if (pendingStores_.empty()) return;
    const DeviceScope scope(*this);
    issuePendingStores();
  }

  bool supportsStoreWhenComplete() const override { return true; }
  bool storeWhenComplete(std::uint64_t* word, std::uint64_t value) override {
    const DeviceScope scope(*this);
    writeValue(reinterpret_cast<CUdeviceptr>(word), value);
    return true;
  }

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override {
    const DeviceScope scope(*this);
    issuePendingStores();
    const auto to = reinterpret_cast<CUdeviceptr>(dst.data()) + dstOffset;
    const auto from = reinterpret_cast<CUdeviceptr>(src.data()) + srcOffset;
    const std::uint64_t parts =
        std::min<std::uint64_t>(helpers_.size() + 1, size / local().config().cudaIpc.bytesPerStream);
    if (parts < 2) {
      copy(to, from, size, stream_);
    } else {
      copyOnSeveralStreams(to, from, size, parts);
    }
  }

  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                   std::uint64_t newValue) override {
    const DeviceScope scope(*this);
    writeValue(reinterpret_cast<CUdeviceptr>(dst.data()) + dstOffset, newValue);
  }

 private:
  /// An additional stream for large copies.
  struct HelperStream {
    PriorityStream stream;
    CudaEvent done;
  };

  /// Makes the connection's GPU current for a call, and creates its stream at the first one.
  class DeviceScope {
   public:
    explicit DeviceScope(CudaIpcConnection& connection) : device_(connection.local().device().id) {
      if (connection.driver_ == nullptr) connection.prepare();
      // The default stream may be under capture.
      if (connection.stream_ == nullptr) capture_.emplace();
    }

   private:
    CudaDeviceGuard device_;
    std::optional<AvoidCudaGraphCaptureGuard> capture_;
  };

  void prepare() {
    AvoidCudaGraphCaptureGuard captureGuard;
    if (!env()->cudaIpcUseDefaultStream) {
      ownStream_.emplace();
      stream_ = ownStream_->get();
      for (int i = 1; i < local().config().cudaIpc.streams; ++i) helpers_.emplace_back();
      if (!helpers_.empty()) startEvent_.emplace();
    }
    driver_ = &driver();
  }

  // Unlike the runtime's, the driver call does not look up the type of each pointer.
  void copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t size, cudaStream_t stream) const {
    MSCCLPP_CUTHROW(driver_->memcpyAsync(to, from, size, stream));
  }

  // The value is part of the command, so the source may change at once; the default flags order it after earlier
  // copies.
  void writeValue(CUdeviceptr address, std::uint64_t value) {
    constexpr std::size_t maxPendingStores = 64;  // the driver accepts 256 at once
    if (!isBatching_) {
      MSCCLPP_CUTHROW(driver_->streamWriteValue64(stream_, address, value, CU_STREAM_WRITE_VALUE_DEFAULT));
      return;
    }
    CUstreamBatchMemOpParams store{};
    store.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    store.writeValue.address = address;
    store.writeValue.value64 = value;
    store.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    pendingStores_.push_back(store);
    if (pendingStores_.size() == maxPendingStores) issuePendingStores();
  }

  void issuePendingStores() {
    if (pendingStores_.empty()) return;
    const auto count = static_cast<unsigned int>(pendingStores_.size());
    MSCCLPP_CUTHROW(driver_->streamBatchMemOp(stream_, count, pendingStores_.data(), 0));
    pendingStores_.clear();
  }

  /// The helper streams start at the main stream's current position, and it continues when they are done.
  void copyOnSeveralStreams(CUdeviceptr to, CUdeviceptr from, std::uint64_t size, std::uint64_t parts) {
    constexpr std::uint64_t alignment = 4096;
    const std::uint64_t part = size / parts / alignment * alignment;
    MSCCLPP_CUDATHROW(cudaEventRecord(startEvent_->get(), stream_));
    const std::uint64_t first = size - (parts - 1) * part;
    copy(to, from, first, stream_);
    for (std::uint64_t i = 1; i < parts; ++i) {
      const HelperStream& helper = helpers_[i - 1];
      const std::uint64_t at = first + (i - 1) * part;
      MSCCLPP_CUDATHROW(cudaStreamWaitEvent(helper.stream.get(), startEvent_->get(), 0));
      copy(to + at, from + at, part, helper.stream.get());
      MSCCLPP_CUDATHROW(cudaEventRecord(helper.done.get(), helper.stream.get()));
      MSCCLPP_CUDATHROW(cudaStreamWaitEvent(stream_, helper.done.get(), 0));
    }
  }

  const Driver* driver_ = nullptr;  // null before prepare()
  std::optional<PriorityStream> ownStream_;
  cudaStream_t stream_ = nullptr;
  std::vector<HelperStream> helpers_;
  std::optional<CudaEvent> startEvent_;
  bool isBatching_ = false;
  std::vector<CUstreamBatchMemOpParams> pendingStores_;
  std::optional<CudaEvent> event_;
  std::uint64_t recorded_ = 0;  // the last operation that the event covers
  std::uint64_t completed_ = 0;
};

}  // namespace

std::shared_ptr<ConnectionBase> makeCudaIpcConnection(std::shared_ptr<Context> context, const Endpoint& local,
                                                      const Endpoint& remote) {
  return std::make_shared<CudaIpcConnection>(std::move(context), local, remote);
}

}  // namespace mscclpp::detail
