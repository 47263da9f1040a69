// Exchanges registrations, connections and semaphores with the other ranks.
#pragma once

#include <cstddef>
#include <future>
#include <memory>

#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/host/transport.hpp"
#include "mscclpp/host/wait_monitor.hpp"

namespace mscclpp {

template <typename T>
using NonblockingFuture = std::shared_future<T>;

/// A bootstrap and a context, joined. What is sent goes out at once. What is received comes as a deferred future:
/// nothing happens until get() or wait(), which then blocks as the bootstrap does and throws what it throws. Receives
/// from one (rank, tag) complete in the order of the calls that made the futures, in whatever order these are asked;
/// different tags are independent. Each send or receive here pairs with the peer's on the same tag: memory with
/// memory, connect with connect, semaphore with semaphore. The peer may be this rank.
///
/// Functions may be called by any thread; the futures outlive the communicator.
class Communicator {
 public:
  /// Makes a context of its own unless given one. Throws Error(InvalidUsage) for a null bootstrap.
  explicit Communicator(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::shared_ptr<Bootstrap> bootstrap() const;
  std::shared_ptr<Context> context() const;

  /// As Context::registerMemory.
  RegisteredMemory registerMemory(void* data, std::size_t size, TransportFlags transports);

  /// The registration stays for as long as the peer may wait for it (MSCCLPP_BOOTSTRAP_TIMEOUT), even if this was its last
  /// copy; over a network it must also stay for as long as it is used.
  void sendMemory(RegisteredMemory memory, int remoteRank, int tag = 0);
  std::shared_future<RegisteredMemory> recvMemory(int remoteRank, int tag = 0);

  /// Sends this rank's endpoint now; the future receives the peer's and connects the two.
  std::shared_future<Connection> connect(const Endpoint& localEndpoint, int remoteRank, int tag = 0);
  std::shared_future<Connection> connect(const EndpointConfig& localConfig, int remoteRank, int tag = 0);

  /// Sends a stub of this rank now; the future receives the peer's.
  std::shared_future<Semaphore> buildSemaphore(const Connection& connection, int remoteRank, int tag = 0);

  /// The peer of a connection that connect() made, and its tag. Throws std::out_of_range for any other.
  int remoteRankOf(const Connection& connection) const;
  int tagOf(const Connection& connection) const;

  /// Watches the waits of kernels on every semaphore that this communicator built for such devices: call its check()
  /// after a kernel.
  std::shared_ptr<WaitMonitor> monitor(DeviceType where);

  /// Gives up, from any thread. What waits ends soon with Error(Aborted), and so does what would wait later: kernels that
  /// a WaitMonitor of this communicator watches, its futures and sends, and flushes and writes of its connections, a
  /// proxy's among them. Calls that are blocked in the bootstrap end too, whoever made them (Bootstrap::abortBlocked); if
  /// there were none the bootstrap stays good, and another communicator can be made over it. Losing a rank, where the
  /// bootstrap notices it, ends with Error(RemoteError) what waits in the bootstrap, what a WaitMonitor watches, and the
  /// waits of the connections to that rank, which their destructors then do without too.
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
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace mscclpp
