// How two ranks authenticate: the keyed handshake (host/net/handshake.hpp) under the job's key. The request carries the
// connecting rank, the rank it connects to, and the purpose.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>

#include "host/net/accept_queue.hpp"
#include "host/net/authentication.hpp"
#include "host/net/socket.hpp"

namespace mscclpp::detail {

/// A key for the connections of one rendezvous: connections of two rendezvous under the same secret cannot mix.
Key deriveSessionKey(const Key& key, const Nonce& sessionNonce);

/// The purpose of a connection.
enum class Purpose : std::uint32_t { Join = 1, Mesh = 2 };

/// Which users' processes may connect. Same: over loopback, only those of this effective user, as reported by the
/// kernel; for keys that other users can derive.
enum class AllowedUsers { Any, Same };

/// What the connecting rank sends about itself; covered by its authentication tag.
struct PeerInfo {
  Purpose purpose;
  std::int32_t rank;
  std::int32_t numRanks;        ///< 0: the rank cannot join, and ends the rendezvous.
  std::int32_t peer;            ///< The rank to which it connects.
  std::uint64_t hostHash;       ///< Equal for ranks of one host.
  SocketAddress listenAddress;  ///< Where it accepts connections of higher ranks.
};

/// Connects to `address` and authenticates. While no process listens there, or the listener is too busy to respond,
/// retries until `deadline`. Throws Error(Timeout), or Error(InvalidUsage) if the other side has another secret,
/// another protocol version, or a user that is not allowed.
UniqueFd connectAndAuthenticate(const SocketAddress& address, const Key& key, const PeerInfo& self, Deadline deadline,
                                AllowedUsers users = AllowedUsers::Any);

/// The accepting side: serves any number of connections at once, and returns those that authenticated. Connections that
/// are slow, invalid or over the limit are closed.
class Acceptor {
 public:
  struct AuthenticatedPeer {
    PeerInfo peerInfo;
    UniqueFd socket;
  };

  /// `expected` is the number of ranks that may connect at the same time. If more connections than that plus a reserve
  /// are pending, the oldest is closed.
  Acceptor(UniqueFd listener, const Key& key, Purpose purpose, int rank, std::size_t expected,
           AllowedUsers users = AllowedUsers::Any);

  ~Acceptor();

  /// The next authenticated rank; nothing at `deadline`, or when poll(2) reports one of `others`. Throws
  /// SysError(EMFILE) if the limit of open files leaves no descriptor for a connection.
  std::optional<AuthenticatedPeer> accept(Deadline deadline, std::span<const pollfd> others = {});

 private:
  struct PendingPeer;
  void acceptConnections();
  std::optional<UniqueFd> authenticate(PendingPeer& peer);

  AcceptQueue queue_;
  Key key_;
  Purpose purpose_;
  int rank_;
  std::size_t capacity_;
  AllowedUsers users_;
  std::list<PendingPeer> pendingPeers_;
};

}  // namespace mscclpp::detail
