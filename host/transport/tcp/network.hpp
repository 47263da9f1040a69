// The TCP network of a context: one listening socket and one thread, for any number of connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "host/base/unique_fd.hpp"
#include "host/cuda/staging_copier.hpp"
#include "host/net/accept_queue.hpp"
#include "host/transport/tcp/handshake.hpp"
#include "host/transport/tcp/registry.hpp"
#include "host/transport/tcp/tcp_receiver.hpp"
#include "host/transport/transport_backend.hpp"

namespace mscclpp::detail::tcp {

class TcpEndpoint;

/// The thread receives for all endpoints. The threads that issue operations send (tcp_connection.hpp), each over a
/// connection that it opens itself: a pair of endpoints has two TCP connections, one in each direction, and the thread
/// never waits for a peer.
class TcpNetwork : public std::enable_shared_from_this<TcpNetwork> {
 public:
  TcpNetwork();
  /// Joins the thread. In a forked child it only closes the child's descriptors.
  ~TcpNetwork();
  TcpNetwork(const TcpNetwork&) = delete;
  TcpNetwork& operator=(const TcpNetwork&) = delete;

  ExportedMemory exportMemory(void* data, std::size_t size);
  std::shared_ptr<TcpEndpoint> createEndpoint(const EndpointConfig& config);

 private:
  friend class TcpEndpoint;

  /// The thread's state for an endpoint.
  struct EndpointState {
    Key key;
    /// The only endpoint that may connect: the first that did, or the one to which the owner connects.
    std::optional<Id128> initiator;
    /// Whether there is or was a connection, and its socket while there is one.
    bool connected = false;
    int socket = -1;
    std::unique_ptr<StagingCopier> copies;
  };

  struct Peer {
    std::unique_ptr<TcpReceiver> receiver;
    std::uint32_t interest;
  };

  void removeEndpoint(const Id128& id) noexcept;
  void setExpectedInitiator(const Id128& id, const Id128& initiator);
  void wake() noexcept;

  void requireThread();

  // Called by the thread.
  void run();
  void fail(std::exception_ptr failure) noexcept;
  void closeAll() noexcept;
  int timeout() const;
  void processEvents(int timeout);
  void acceptConnections();
  void continueHandshake(std::list<PendingPeer>::iterator peer);
  void authenticatePeer(PendingPeer& peer);
  void serve(int socket);
  void updateEpoll(int socket, std::uint32_t events, int operation) noexcept;
  using PeerMap = std::unordered_map<int, Peer>;
  void disconnect(const UniqueFd& socket) noexcept;
  void closePeer(PeerMap::iterator peer) noexcept;
  void closePending(std::list<PendingPeer>::iterator peer) noexcept;
  void dropExpired();
  void closeRemoved();

  const OwnerProcess owner_;
  const Id128 id_ = randomId();
  Registry registry_;
  AcceptQueue queue_;
  SocketAddress address_;
  UniqueFd epoll_;
  UniqueFd wakeup_;

  std::mutex mutex_;
  std::map<Id128, EndpointState> endpoints_;
  std::vector<int> removed_;  // connections whose endpoint has been destroyed
  bool stopping_ = false;
  std::exception_ptr failure_;  // why the thread has ended

  // Used by the thread only.
  PeerMap peers_;
  std::list<PendingPeer> pending_;
  bool watchesQueue_ = true;  // the listener is in the epoll set
  using Clock = std::chrono::steady_clock;
  Clock::time_point busyPollUntil_{};

  std::thread thread_;
};

/// An entry of the network's table, in which the thread looks up which peer may connect.
class TcpEndpoint : public EndpointResources {
 public:
  TcpEndpoint(std::shared_ptr<TcpNetwork> network, const EndpointInfo& info)
      : network_(std::move(network)), info_(info) {}
  ~TcpEndpoint() override {
    if (network_->owner_.isCurrent()) network_->removeEndpoint(info_.id);
  }

  std::vector<char> serializedInfo() const override;
  /// `peerInfo` is what the peer's serializedInfo() returned. Only that peer may connect to this endpoint from now on.
  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, const std::vector<char>& peerInfo, Deadline deadline);

 private:
  std::shared_ptr<TcpNetwork> network_;
  EndpointInfo info_;
};

}  // namespace mscclpp::detail::tcp
