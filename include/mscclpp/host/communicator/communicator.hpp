// Exchanges registrations, connections and semaphores with the other ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>

#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {

namespace detail {
class GroupSetup;
}

template <typename T>
using NonblockingFuture = std::shared_future<T>;

/// A bootstrap and a context combined. Sends take effect at once. Receives return deferred futures: nothing happens
/// until get() or wait(), which then blocks as the bootstrap does and throws what it throws. Receives from one (rank,
/// tag) complete in the order of the calls that created the futures, in whatever order they are waited for; different
/// tags are independent. Each send or receive here pairs with the peer's on the same tag: memory with memory, connect
/// with connect, semaphore with semaphore. The peer may be this rank.
///
/// Any thread may call any function; the futures outlive the communicator.
class Communicator {
 public:
  /// Creates its own context unless given one. Throws Error(InvalidUsage) for a null bootstrap.
  explicit Communicator(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::shared_ptr<Bootstrap> bootstrap() const;
  std::shared_ptr<Context> context() const;

  /// Like Context::registerMemory.
  RegisteredMemory registerMemory(void* data, std::size_t size, TransportFlags transports);

  /// The registration stays valid for as long as the peer may wait for it (MSCCLPP_BOOTSTRAP_TIMEOUT), even if this was
  /// its last copy; over a network the caller must also keep a copy for as long as the memory is used.
  void sendMemory(RegisteredMemory memory, int remoteRank, int tag = 0);
  std::shared_future<RegisteredMemory> recvMemory(int remoteRank, int tag = 0);

  /// Sends this rank's endpoint now; the future receives the peer's and connects the two.
  std::shared_future<Connection> connect(const Endpoint& localEndpoint, int remoteRank, int tag = 0);
  std::shared_future<Connection> connect(const EndpointConfig& localConfig, int remoteRank, int tag = 0);

  /// Sends a stub of this rank now; the future receives the peer's.
  std::shared_future<Semaphore> buildSemaphore(const Connection& connection, int remoteRank, int tag = 0);

  /// The rank, or the tag, of a connection that connect() made. Throws std::out_of_range for any other connection.
  int remoteRankOf(const Connection& connection) const;
  int tagOf(const Connection& connection) const;

  /// Watches the waits of kernels on every semaphore that this communicator built for such devices: call its check()
  /// after a kernel.
  std::shared_ptr<WaitMonitor> monitor(DeviceType where);

  /// Timeout of the waits of kernels and CPU ranks that monitors watch which are made later, by Collectives and others;
  /// the same on all ranks. By default MSCCLPP_WAIT_TIMEOUT. Called by the thread that makes them.
  void setWaitTimeout(std::chrono::milliseconds timeout);

  /// Aborts, from any thread. All current and later waits end soon with Error(Aborted): those of kernels that a
  /// WaitMonitor of this communicator watches, of its futures and sends, of flushes and writes of its connections,
  /// including a proxy's, and of set-ups of SymmetricMemory, RegisteredBuffer, NvlsConnection and Collectives. Calls
  /// that are blocked in the bootstrap end too, in any thread (Bootstrap::abortBlocked); if there were none, the
  /// bootstrap remains usable, and another communicator can be created over it. The failure of a rank, if the bootstrap
  /// detects it, ends the following with Error(RemoteError): waits in the bootstrap, waits that a WaitMonitor watches,
  /// and waits of the connections to that rank, whose destructors then do not wait either.
  void abort() noexcept;

  [[deprecated("use sendMemory")]] void sendMemoryOnSetup(RegisteredMemory memory, int remoteRank, int tag) {
    sendMemory(std::move(memory), remoteRank, tag);
  }
  [[deprecated("use recvMemory")]] NonblockingFuture<RegisteredMemory> recvMemoryOnSetup(int remoteRank, int tag) {
    return recvMemory(remoteRank, tag);
  }
  [[deprecated("use connect")]] NonblockingFuture<Connection> connectOnSetup(int remoteRank, int tag,
                                                                             EndpointConfig localConfig) {
    return connect(localConfig, remoteRank, tag);
  }
  [[deprecated("it does nothing; the futures do the work")]] void setup() {}

 private:
  friend class WaitMonitor;
  friend class detail::GroupSetup;
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace mscclpp
