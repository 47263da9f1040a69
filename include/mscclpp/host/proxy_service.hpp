// Proxy service: numbers memories and semaphores, and does what port channels ask for.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/semaphore.hpp"

namespace mscclpp {

class Communicator;

/// What can be started and stopped as a proxy.
class BaseProxyService {
 public:
  virtual ~BaseProxyService() = default;
  virtual void startProxy(bool blocking = false) = 0;
  virtual void stopProxy() = 0;
};

/// How a proxy service works: ProxyOptions without what the service does itself.
struct ProxyServiceOptions {
  ProxyThreadOptions thread = {};
  /// Channels are dealt out to the FIFOs by the number of their semaphore.
  int fifos = 1;
  int fifoSize = DEFAULT_FIFO_SIZE;
  int popsPerReport = 16;
};

/// One thread that serves any number of channels, over whatever their connections are. Semaphores and memories may be added, and channels made, at any
/// time and from any thread, whether the proxy runs or not.
///
/// A request is checked whole before any of it is done: its type, the numbers of memories and semaphore, the ranges. A bad one ends the proxy, and with it
/// the waits of kernels on its channels; check() and stopProxy() throw an Error that names the trigger. The connections must be used by nobody else while
/// the proxy runs.
template <PortTriggerLayout Trigger>
class BasicProxyService : public BaseProxyService {
 public:
  using ProxyType = BasicProxy<Trigger>;

  /// For GPUs: the one that is current.
  explicit BasicProxyService(int fifoSize = DEFAULT_FIFO_SIZE);
  explicit BasicProxyService(const ProxyServiceOptions& options);
  /// As Proxy::end: unlike stopProxy it does not wait until what was asked for has arrived.
  ~BasicProxyService() override;
  BasicProxyService(const BasicProxyService&) = delete;
  BasicProxyService& operator=(const BasicProxyService&) = delete;

  /// Builds a semaphore with the peer of the connection, which must do the same; blocks until it has.
  SemaphoreId buildAndAddSemaphore(Communicator& communicator, const Connection& connection);
  /// Numbers rise from 0. Throws Error(InvalidUsage) if the triggers have no room for one more.
  SemaphoreId addSemaphore(const Semaphore& semaphore);
  SemaphoreId addSemaphore(std::shared_ptr<Host2DeviceSemaphore> semaphore);
  MemoryId addMemory(RegisteredMemory memory);
  /// The first of the next `count` numbers that addMemory will give.
  MemoryId nextMemoryId(std::uint32_t count = 1) const;

  std::shared_ptr<Host2DeviceSemaphore> semaphore(SemaphoreId id) const;
  /// These throw Error(InvalidUsage) for a semaphore that has not been added. Memories may be added later.
  BasicBasePortChannel<Trigger> basePortChannel(SemaphoreId id) const;
  BasicPortChannel<Trigger> portChannel(SemaphoreId id, MemoryId dst, MemoryId src) const;

  /// As Proxy::start and stop, by one thread at a time. When stopProxy returns, all that had been asked for has arrived.
  void startProxy(bool blocking = false) override;
  void stopProxy() override;
  /// Throws what ended the proxy, if something did.
  void check() const;
  /// Whether the thread runs.
  bool running() const noexcept { return proxy_->running(); }

 private:
  class State;
  std::chrono::milliseconds stopTimeout_;
  std::shared_ptr<State> state_;
  std::shared_ptr<ProxyType> proxy_;
};

extern template class BasicProxyService<ProxyTrigger>;
extern template class BasicProxyService<WideTrigger>;

using ProxyService = BasicProxyService<ProxyTrigger>;
using WideProxyService = BasicProxyService<WideTrigger>;

}  // namespace mscclpp
