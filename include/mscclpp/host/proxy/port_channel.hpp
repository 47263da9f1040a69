// Port channels: kernels push requests, and a proxy transfers the data. The host objects; the device side is
// channel/port.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "mscclpp/channel/port.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/proxy/proxy.hpp"

namespace mscclpp {

/// Data and synchronisation; each call names its memories. Usually created by a ProxyService. Keeps the FIFO, the
/// semaphore and the proxy alive; may be created and destroyed whether or not the proxy is running, but not while a
/// kernel uses it.
template <PortTriggerLayout Trigger>
class BasicBasePortChannel {
 public:
  using DeviceHandle = BasicBasePortChannelHandle<Trigger>;
  using ProxyType = BasicProxy<Trigger>;

  /// Empty: deviceHandle() throws Error(InvalidUsage).
  BasicBasePortChannel() = default;
  /// For a proxy with a user-defined handler, which receives `id` in the triggers: flush then waits until the trigger
  /// has been handled.
  BasicBasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                       std::shared_ptr<ProxyType> proxy);
  BasicBasePortChannel(SemaphoreId id, const Semaphore& semaphore, std::shared_ptr<ProxyType> proxy);
  /// The same with the index of the proxy's FIFO into which the channel pushes, and the word in which the proxy stores
  /// up to which position the requests there have completed; null: they complete when popped.
  BasicBasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                       std::shared_ptr<ProxyType> proxy, int fifo, std::shared_ptr<const std::uint64_t> flushDone);

  DeviceHandle deviceHandle() const;
  /// Null if empty.
  const std::shared_ptr<Host2DeviceSemaphore>& semaphore() const noexcept { return semaphore_; }

 private:
  SemaphoreId id_ = 0;
  std::shared_ptr<Host2DeviceSemaphore> semaphore_;
  std::shared_ptr<ProxyType> proxy_;
  int fifo_ = 0;
  std::shared_ptr<const std::uint64_t> flushDone_;
};

/// The same between one local memory and one of the peer's, given by their ids.
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
  /// `readable`: the source memory, if device code may read it and the connection writes values; otherwise empty.
  BasicPortChannel(Base base, MemoryId dst, MemoryId src, std::span<const std::byte> readable = {});

  DeviceHandle deviceHandle() const;

 private:
  MemoryId dst_ = 0;
  MemoryId src_ = 0;
  std::span<const std::byte> readableSource_;
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
