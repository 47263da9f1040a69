// Proxy service: registers memories and semaphores under ids, and executes the requests of port channels.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/proxy/port_channel.hpp"
#include "mscclpp/host/proxy/proxy.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {

class Communicator;

/// A proxy that can be started and stopped.
class BaseProxyService {
 public:
  virtual ~BaseProxyService() = default;
  virtual void startProxy(bool blocking = false) = 0;
  virtual void stopProxy() = 0;
};

/// Options of a proxy service: ProxyOptions without what the service sets itself.
struct ProxyServiceOptions {
  ProxyThreadOptions thread = {};
  /// From 1 to ProxyOptions::maxFifos. Channels are assigned to FIFOs round-robin by semaphore id.
  int fifos = 1;
  int fifoSize = DEFAULT_FIFO_SIZE;
  int popsPerTailUpdate = 16;
};

/// One thread that serves any number of channels over any connections. Semaphores and memories can be added, and
/// channels created, at any time and from any thread, whether or not the proxy is running.
///
/// A request is validated completely before any of it is executed: its type, the ids of memories and semaphore, the
/// ranges. An invalid one ends the proxy, and with it the waits of kernels on its channels; check() and stopProxy()
/// throw an Error that names the trigger. No other thread may use the connections while the proxy is running.
template <PortTriggerLayout Trigger>
class BasicProxyService : public BaseProxyService {
 public:
  using ProxyType = BasicProxy<Trigger>;

  /// For the current GPU.
  explicit BasicProxyService(int fifoSize = DEFAULT_FIFO_SIZE);
  explicit BasicProxyService(const ProxyServiceOptions& options);
  /// Like Proxy::shutdown: unlike stopProxy, it does not wait until the requested operations have arrived.
  ~BasicProxyService() override;
  BasicProxyService(const BasicProxyService&) = delete;
  BasicProxyService& operator=(const BasicProxyService&) = delete;

  /// Builds a semaphore with the peer of the connection, which must make the same call; blocks until both have.
  SemaphoreId buildAndAddSemaphore(Communicator& communicator, const Connection& connection);
  /// Ids are assigned from 0 upwards. Throws Error(InvalidUsage) if the trigger format has no further id.
  SemaphoreId addSemaphore(const Semaphore& semaphore);
  SemaphoreId addSemaphore(std::shared_ptr<Host2DeviceSemaphore> semaphore);
  MemoryId addMemory(RegisteredMemory memory);
  /// The first of the next `count` ids that addMemory will return.
  MemoryId nextMemoryId(std::uint32_t count = 1) const;

  std::shared_ptr<Host2DeviceSemaphore> semaphore(SemaphoreId id) const;
  /// Throw Error(InvalidUsage) for a semaphore that has not been added. Memories may be added later.
  BasicBasePortChannel<Trigger> basePortChannel(SemaphoreId id) const;
  BasicPortChannel<Trigger> portChannel(SemaphoreId id, MemoryId dst, MemoryId src) const;

  /// Like Proxy::start and stop; called by one thread at a time. When stopProxy returns, all requested operations have
  /// arrived.
  void startProxy(bool blocking = false) override;
  void stopProxy() override;
  /// Throws the error that ended the proxy, if there was one.
  void check() const;
  /// Whether the thread is running.
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
