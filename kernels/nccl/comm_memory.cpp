// The memory of a communicator, and how it is released for a while.
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/device.hpp"

namespace mscclpp::nccl {

std::shared_ptr<Collectives> Comm::makeCollectives() const {
  return std::make_shared<Collectives>(resources_->communicator, deviceType(), Collectives::Algorithms::Selected,
                                       maxBlocks_);
}

std::shared_ptr<Collectives> Comm::findCollectives() const {
  const std::lock_guard lock(mutex_);
  return resources_->collectives;
}

bool Comm::isSuspended() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::Suspended;
}

Comm::MemoryUse Comm::memoryUse() const {
  const auto* oneSided = findOneSided();
  return {suspendableBytes_, oneSided == nullptr ? 0 : oneSided->memoryBytes(), isSuspended()};
}

// The peers have mapped the memory: it is free when all of them have given it up.
void Comm::suspend() {
  const std::lock_guard lock(callMutex_);
  requireReady();
  if (forwarded_) throwUnsupported("releasing the memory of a communicator of several hosts");
  const DeviceScope scope(device_);
  const detail::GroupSetup setup(*resources_->communicator);
  const detail::GroupAgreement agreement(*ranks_.bootstrap(), "the suspension");
  agreement.runStep("end its calls", [&] {
    if (isCaptured_) {
      throwInvalidUsage("a graph has captured calls of the communicator: it would use memory that is released");
    }
    {
      const std::lock_guard stateLock(mutex_);
      if (!windows_.empty()) throwInvalidUsage("the communicator has windows: deregister them first, on all ranks");
    }
    waitForDevice(device_);
    resources_->collectives->check();
    return std::vector<char>();
  });
  {
    std::shared_ptr<Collectives> released;
    const std::lock_guard stateLock(mutex_);
    released.swap(resources_->collectives);
    if (state_ == State::Ready) state_ = State::Suspended;
  }
  agreement.runStep("release its memory", [] { return std::vector<char>(); });
}

void Comm::resume() {
  const std::lock_guard lock(callMutex_);
  if (!isSuspended()) return requireReady();
  const DeviceScope scope(device_);
  auto collectives = makeCollectives();
  const std::lock_guard stateLock(mutex_);
  resources_->collectives = std::move(collectives);
  if (state_ == State::Suspended) state_ = State::Ready;
}

}  // namespace mscclpp::nccl
