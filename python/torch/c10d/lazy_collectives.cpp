#include "lazy_collectives.hpp"

#include "kernels/message_exchange.hpp"
#include "kernels/movers/gpu_signals.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

LazyCollectives::LazyCollectives(nccl::RankSet ranks, DeviceType deviceType, int maxBlocks)
    : ranks_(std::move(ranks)), deviceType_(deviceType), maxBlocks_(maxBlocks) {}

LazyCollectives::~LazyCollectives() {
  signals_.reset();
  collectives_.reset();
  communicator_.reset();
  ranks_.disconnect();
}

Collectives& LazyCollectives::get() {
  {
    const std::lock_guard lock(mutex_);
    if (isAborted_) throw Error("the process group was aborted: make a new one", ErrorCode::Aborted);
    if (collectives_) return *collectives_;
    communicator_ = std::make_shared<Communicator>(ranks_.bootstrap());
    communicator_->setWaitTimeout(timeout_.load());
  }
  auto made = std::make_shared<Collectives>(communicator_, deviceType_, Collectives::Algorithms::Selected, maxBlocks_);
  const std::lock_guard lock(mutex_);
  collectives_ = std::move(made);
  return *collectives_;
}

RegisteredBuffers::Handle LazyCollectives::registerBuffer(void* data, std::size_t bytes) {
  auto registered = get().registerBuffer(data, bytes);
  const std::lock_guard lock(mutex_);
  if (!signals_) {
    // What a capture rejects.
    if (deviceType_ == DeviceType::GPU) kernels::gpu::loadSignalKernels();
    signals_ = std::make_shared<WaitMonitor>(*communicator_, deviceType_);
  }
  return registered;
}

BoundedWait LazyCollectives::signalWait(std::chrono::milliseconds timeout) const {
  const std::lock_guard lock(mutex_);
  const std::chrono::nanoseconds limit = timeout.count() > 0 ? timeout : signals_->timeout();
  return {signals_->deviceControl(), static_cast<std::uint64_t>(limit.count())};
}

void LazyCollectives::run(Operation& operation, CUstream_st* stream) {
  Collectives& collectives = get();
  for (CollectiveCall& call : operation.calls) call.stream = stream;
  if (!operation.calls.empty()) collectives.run(operation.calls);
  if (!operation.sends.empty() || !operation.receives.empty()) {
    kernels::exchange(collectives, operation.sends, operation.receives, stream);
  }
}

void LazyCollectives::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    isAborted_ = true;
    if (communicator_) communicator_->abort();
  }
  ranks_.leave();
}

void LazyCollectives::check() const {
  std::shared_ptr<Collectives> made;
  std::shared_ptr<WaitMonitor> signals;
  {
    const std::lock_guard lock(mutex_);
    if (isAborted_) throw Error("the process group was aborted: make a new one", ErrorCode::Aborted);
    made = collectives_;
    signals = signals_;
  }
  if (made) made->check();
  if (signals) signals->check();
}

}  // namespace mscclpp::torch_c10d
