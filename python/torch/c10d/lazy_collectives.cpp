#include "lazy_collectives.hpp"

#include "kernels/message_exchange.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

LazyCollectives::LazyCollectives(nccl::RankSet ranks, DeviceType deviceType, int maxBlocks)
    : ranks_(std::move(ranks)), deviceType_(deviceType), maxBlocks_(maxBlocks) {}

LazyCollectives::~LazyCollectives() {
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

void LazyCollectives::run(Operation& operation, CUstream_st* stream) {
  Collectives& collectives = get();
  for (CollectiveCall& call : operation.calls) call.stream = stream;
  if (!operation.calls.empty()) collectives.run(operation.calls);
  if (!operation.sends.empty() || !operation.receives.empty()) {
    kernels::exchange(collectives, rank(), size(), operation.sends, operation.receives, stream);
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
  {
    const std::lock_guard lock(mutex_);
    if (isAborted_) throw Error("the process group was aborted: make a new one", ErrorCode::Aborted);
    made = collectives_;
  }
  if (made) made->check();
}

}  // namespace mscclpp::torch_c10d
