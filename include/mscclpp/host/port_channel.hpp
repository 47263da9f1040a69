// Port channels: kernels ask, and a proxy moves the data. The owners; the device side is channel/port.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "mscclpp/channel/port.hpp"
#include "mscclpp/host/host_semaphore.hpp"
#include "mscclpp/host/proxy.hpp"
#include "mscclpp/host/semaphore.hpp"

namespace mscclpp {

/// Data and synchronisation, for memories that each call names. As a rule made by a ProxyService. Keeps the FIFO, the semaphore and the proxy alive; may be
/// made and destroyed whether the proxy runs or not, but not while a kernel uses it.
template <PortTriggerLayout Trigger>
class BasicBasePortChannel {
 public:
  using DeviceHandle = BasicBasePortChannelHandle<Trigger>;
  using ProxyType = BasicProxy<Trigger>;

  /// Stands for nothing: deviceHandle() throws Error(InvalidUsage).
  BasicBasePortChannel() = default;
  /// For a proxy with a handler of one's own, which finds `id` in the triggers: flush then waits until the trigger has been handled.
  BasicBasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                       std::shared_ptr<ProxyType> proxy);
  BasicBasePortChannel(SemaphoreId id, const Semaphore& semaphore, std::shared_ptr<ProxyType> proxy);
  /// The same with the FIFO of the proxy that the channel pushes into, and the word in which the proxy says how far the channel's requests there have
  /// completed; null: as far as they are popped.
  BasicBasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                       std::shared_ptr<ProxyType> proxy, int fifo, std::shared_ptr<const std::uint64_t> flushDone);

  DeviceHandle deviceHandle() const;

 private:
  SemaphoreId id_ = 0;
  std::shared_ptr<Host2DeviceSemaphore> semaphore_;
  std::shared_ptr<ProxyType> proxy_;
  int fifo_ = 0;
  std::shared_ptr<const std::uint64_t> flushDone_;
};

/// The same between one memory here and one of the peer's, by their numbers.
template <PortTriggerLayout Trigger>
class BasicPortChannel : public BasicBasePortChannel<Trigger> {
 public:
  using Base = BasicBasePortChannel<Trigger>;
  using DeviceHandle = BasicPortChannelHandle<Trigger>;

  BasicPortChannel() = default;
  BasicPortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                   std::shared_ptr<typename Base::ProxyType> proxy, MemoryId dst, MemoryId src);
  BasicPortChannel(SemaphoreId id, const Semaphore& semaphore, std::shared_ptr<typename Base::ProxyType> proxy,
                   MemoryId dst, MemoryId src);
  /// `readable`: the source memory, if device code may read it and the connection writes values; else empty.
  BasicPortChannel(Base base, MemoryId dst, MemoryId src, std::span<const std::byte> readable = {});

  DeviceHandle deviceHandle() const;

 private:
  MemoryId dst_ = 0;
  MemoryId src_ = 0;
  std::span<const std::byte> readable_;
};

extern template class BasicBasePortChannel<ProxyTrigger>;
extern template class BasicBasePortChannel<WideTrigger>;
extern template class BasicPortChannel<ProxyTrigger>;
extern template class BasicPortChannel<WideTrigger>;

using BasePortChannel = BasicBasePortChannel<ProxyTrigger>;
using PortChannel = BasicPortChannel<ProxyTrigger>;
using WideBasePortChannel = BasicBasePortChannel<WideTrigger>;
using WidePortChannel = BasicPortChannel<WideTrigger>;

using BaseProxyChannel [[deprecated("use BasePortChannel")]] = BasePortChannel;
using ProxyChannel [[deprecated("use PortChannel")]] = PortChannel;
using SimpleProxyChannel [[deprecated("use PortChannel")]] = PortChannel;

}  // namespace mscclpp
