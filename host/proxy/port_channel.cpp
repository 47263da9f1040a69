#include "mscclpp/host/proxy/port_channel.hpp"

#include <utility>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

template <PortTriggerLayout Trigger>
BasicBasePortChannel<Trigger>::BasicBasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                                                    std::shared_ptr<ProxyType> proxy)
    : BasicBasePortChannel(id, std::move(semaphore), std::move(proxy), 0, nullptr) {}

template <PortTriggerLayout Trigger>
BasicBasePortChannel<Trigger>::BasicBasePortChannel(SemaphoreId id, const Semaphore& semaphore,
                                                    std::shared_ptr<ProxyType> proxy)
    : BasicBasePortChannel(id, std::make_shared<Host2DeviceSemaphore>(semaphore), std::move(proxy)) {}

template <PortTriggerLayout Trigger>
BasicBasePortChannel<Trigger>::BasicBasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                                                    std::shared_ptr<ProxyType> proxy, int fifo,
                                                    std::shared_ptr<const std::uint64_t> flushDone)
    : id_(id),
      semaphore_(std::move(semaphore)),
      proxy_(std::move(proxy)),
      fifo_(fifo),
      flushDone_(std::move(flushDone)) {
  if (!semaphore_ || !proxy_) {
    throw Error("PortChannel: the semaphore and the proxy must not be null", ErrorCode::InvalidUsage);
  }
  static_cast<void>(proxy_->fifo(fifo_));  // throws if there is none
  proxy_->abortOnFailure(semaphore_->monitor());
}

template <PortTriggerLayout Trigger>
BasicBasePortChannelHandle<Trigger> BasicBasePortChannel<Trigger>::deviceHandle() const {
  if (!semaphore_) {
    throw Error("this port channel is empty: take one from a ProxyService", ErrorCode::InvalidUsage);
  }
  DeviceHandle handle{id_, semaphore_->deviceHandle(), proxy_->fifo(fifo_)->deviceHandle(), flushDone_.get()};
  // Failures in the channel are reported to one monitor: that of the semaphore's waits, if its communicator has one.
  const SemaphoreHandle& inbound = handle.semaphore_;
  if (inbound.waitControl != nullptr) handle.fifo_.waitControl = inbound.waitControl;
  handle.fifo_.rank = inbound.rank;
  return handle;
}

template <PortTriggerLayout Trigger>
BasicPortChannel<Trigger>::BasicPortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                                            std::shared_ptr<typename Base::ProxyType> proxy, MemoryId dst, MemoryId src)
    : BasicPortChannel(Base(id, std::move(semaphore), std::move(proxy)), dst, src) {}

template <PortTriggerLayout Trigger>
BasicPortChannel<Trigger>::BasicPortChannel(SemaphoreId id, const Semaphore& semaphore,
                                            std::shared_ptr<typename Base::ProxyType> proxy, MemoryId dst, MemoryId src)
    : BasicPortChannel(Base(id, semaphore, std::move(proxy)), dst, src) {}

template <PortTriggerLayout Trigger>
BasicPortChannel<Trigger>::BasicPortChannel(Base base, MemoryId dst, MemoryId src, std::span<const std::byte> readable)
    : Base(std::move(base)), dst_(dst), src_(src), readableSource_(readable) {}

template <PortTriggerLayout Trigger>
BasicPortChannelHandle<Trigger> BasicPortChannel<Trigger>::deviceHandle() const {
  return {Base::deviceHandle(), dst_, src_, readableSource_.data(), readableSource_.size() / 8 * 8};
}

template class BasicBasePortChannel<ProxyTrigger>;
template class BasicBasePortChannel<WideTrigger>;
template class BasicPortChannel<ProxyTrigger>;
template class BasicPortChannel<WideTrigger>;

}  // namespace mscclpp
