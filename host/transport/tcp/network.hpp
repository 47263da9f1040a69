// TCP as a network: one listening socket and one thread for a context, however many connections it has.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../../network.hpp"
#include "../../staged_copies.hpp"
#include "../../unique_fd.hpp"
#include "handshake.hpp"
#include "inbound.hpp"
#include "registry.hpp"

namespace mscclpp::detail::tcp {

/// The thread receives for all endpoints. Sending is done by the threads that issue operations (outbound.hpp), each over
/// a connection of its own that it dials; so a pair of endpoints has two TCP connections, one each way, and the thread
/// never waits for anybody.
class TcpNetwork : public Network, public std::enable_shared_from_this<TcpNetwork> {
 public:
  TcpNetwork();
  /// Joins the thread.
  ~TcpNetwork() override;

  SharedPiece share(void* data, std::size_t size) override;
  std::shared_ptr<NetworkEndpoint> createEndpoint(const EndpointConfig& config) override;
  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, Deadline deadline) override;

 private:
  class LocalEndpoint;

  /// What the thread knows of an endpoint.
  struct EndpointSlot {
    Key key;
    /// Who may connect, once that is known: whoever came first, or whom the owner connects to.
    std::optional<Id128> caller;
    /// Whether there is or was a connection, and its socket while there is one.
    bool taken = false;
    int socket = -1;
    std::unique_ptr<StagedCopies> copies;
  };

  void removeSlot(const Id128& id) noexcept;
  void bindSlot(const Id128& id, const Id128& caller);
  void wake() noexcept;

  // The thread.
  void run() noexcept;
  int timeout() const;
  void serveReady(int timeout);
  void acceptConnections();
  void advance(std::list<PendingPeer>::iterator peer);
  void assignSlot(PendingPeer& peer);
  void serve(int socket);
  void watch(int socket, std::uint32_t events, int operation) noexcept;
  void dropExpired();
  void closeRemoved();

  const pid_t owner_;
  const Id128 id_ = randomId();
  Registry registry_;
  UniqueFd listener_;
  SocketAddress address_;
  UniqueFd epoll_;
  UniqueFd wakeup_;

  std::mutex mutex_;
  std::map<Id128, EndpointSlot> slots_;
  std::vector<int> removed_;  // connections whose endpoint is gone
  bool stopping_ = false;

  // The thread's own.
  struct Peer {
    std::unique_ptr<Inbound> inbound;
    std::uint32_t interest;
  };
  std::unordered_map<int, Peer> peers_;
  std::list<PendingPeer> pending_;
  std::optional<Deadline> acceptAgain_;
  using Clock = std::chrono::steady_clock;
  Clock::time_point awakeUntil_{};

  std::thread thread_;
};

}  // namespace mscclpp::detail::tcp
