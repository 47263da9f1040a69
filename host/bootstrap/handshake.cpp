#include "host/bootstrap/handshake.hpp"

#include <poll.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "host/net/handshake.hpp"
#include "host/net/retry.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr HandshakeProtocol protocol{0x3170632b2b63736d, 1, "mscclpp connecting",
                                     "mscclpp accepting "};  // "msc++cp1" as bytes

// A rank responds in milliseconds. A client that takes longer than this is disconnected.
constexpr std::chrono::milliseconds handshakeTimeout = 5s;
// How long a peer may take to authenticate while descriptors have run out.
constexpr auto evictionAge = 500ms;
constexpr std::size_t extraPendingPeers = 128;

// One attempt. Returns an empty UniqueFd if another attempt may succeed.
UniqueFd tryHandshake(const SocketAddress& address, const Key& key, const PeerInfo& self, Deadline deadline,
                      AllowedUsers users, std::string& lastError) {
  int errorNumber = 0;
  UniqueFd socket = tryConnect(address, deadline, errorNumber);
  if (!socket) {
    lastError = std::strerror(errorNumber);
    return UniqueFd();
  }
  // Before the request: afterwards the peer may reply, with an error too, and close its socket, which then has no user.
  const auto isOfAllowedUser = [&] {
    if (users != AllowedUsers::Same) return true;
    const auto user = loopbackPeerUser(socket);
    if (user && *user != ::geteuid()) {
      throw Error("a process of another user (" + std::to_string(*user) + ") listens at " + address.toString() +
                      ", where rank " + std::to_string(self.peer) + " should: choose another port",
                  ErrorCode::InvalidUsage);
    }
    if (!user) lastError = "it closed the connection";
    return user.has_value();
  };
  const auto status = performHandshake(socket, protocol, key, self, deadline, lastError, isOfAllowedUser);
  if (!status) return UniqueFd();
  if (*status == HandshakeStatus::Accepted) return socket;
  if (*status == HandshakeStatus::VersionMismatch) {
    throw Error("the program that listens at " + address.toString() +
                    " is not this version of mscclpp: use one version on all ranks",
                ErrorCode::InvalidUsage);
  }
  throw Error("rank " + std::to_string(self.rank) + " and the job at " + address.toString() +
                  " have different secrets: give all ranks the same UniqueId or MSCCLPP_SECRET",
              ErrorCode::InvalidUsage);
}

}  // namespace

Key deriveSessionKey(const Key& key, const Nonce& sessionNonce) {
  Key result;
  crypto_generichash(result.data(), result.size(), sessionNonce.data(), sessionNonce.size(), key.data(), key.size());
  return result;
}

UniqueFd connectAndAuthenticate(const SocketAddress& address, const Key& key, const PeerInfo& self, Deadline deadline,
                                AllowedUsers users) {
  std::string lastError;
  UniqueFd socket =
      retryUntil(deadline, 100ms, [&] { return tryHandshake(address, key, self, deadline, users, lastError); });
  if (socket) return socket;
  throw Error("rank " + std::to_string(self.rank) + " could not reach rank " + std::to_string(self.peer) + " at " +
                  address.toString() + " within " + deadline.elapsedText() + " (" + lastError +
                  "): is that rank running, and may this host connect to it?",
              ErrorCode::Timeout);
}

struct Acceptor::PendingPeer : PendingHandshake<PeerInfo> {
  explicit PendingPeer(UniqueFd connection)
      : PendingHandshake(protocol, std::move(connection), Deadline::after(handshakeTimeout)),
        address(remoteAddressOf(socket())) {}

  SocketAddress address;
};

Acceptor::Acceptor(UniqueFd listener, const Key& key, Purpose purpose, int rank, std::size_t expected,
                   AllowedUsers users)
    : queue_(std::move(listener), "other ranks"),
      key_(key),
      purpose_(purpose),
      rank_(rank),
      capacity_(expected + extraPendingPeers),
      users_(users) {
  startListening(queue_.listener());
}

Acceptor::~Acceptor() = default;

void Acceptor::acceptConnections() {
  const bool wasShort = queue_.shortage() != 0;
  // Bounded, so that pending peers are served however many clients connect.
  for (std::size_t i = 0; i < capacity_; ++i) {
    UniqueFd socket = queue_.accept();
    if (!socket) {
      if (queue_.shortage() == 0) return;
      // Pending peers may end soon; one that takes long is evicted, but not earlier: the ranks of a busy host are slow,
      // too, and would never get in. If there are none, the limit of descriptors is too low for this job.
      if (queue_.shortage() == EMFILE && pendingPeers_.empty()) {
        throw SysError("rank " + std::to_string(rank_) + " cannot accept connections of the other ranks", EMFILE);
      }
      const auto isSlow = [](const PendingPeer& peer) {
        return Deadline::Clock::now() > peer.deadline().timePoint() - handshakeTimeout + evictionAge;
      };
      if (wasShort && !pendingPeers_.empty() && isSlow(pendingPeers_.front())) pendingPeers_.pop_front();
      return;
    }
    if (pendingPeers_.size() == capacity_) pendingPeers_.pop_front();
    pendingPeers_.emplace_back(std::move(socket));
  }
}

// Returns the connection of an authenticated peer.
std::optional<UniqueFd> Acceptor::authenticate(PendingPeer& peer) {
  if (!peer.verify(key_)) {
    peer.reply(HandshakeStatus::Unauthorized, std::nullopt);
    return std::nullopt;
  }
  if (peer.request().purpose != purpose_ || peer.request().peer != rank_) return std::nullopt;
  if (users_ == AllowedUsers::Same && loopbackPeerUser(peer.socket()) != ::geteuid()) return std::nullopt;
  if (!peer.reply(HandshakeStatus::Accepted, key_)) return std::nullopt;
  return peer.takeSocket();
}

std::optional<Acceptor::AuthenticatedPeer> Acceptor::accept(Deadline deadline, std::span<const pollfd> others) {
  std::vector<pollfd> entries;
  while (true) {
    for (auto pendingPeer = pendingPeers_.begin(); pendingPeer != pendingPeers_.end();) {
      const auto state = pendingPeer->receive();
      if (state == PendingPeer::State::Waiting && !pendingPeer->deadline().expired()) {
        ++pendingPeer;
        continue;
      }
      std::optional<UniqueFd> socket;
      if (state == PendingPeer::State::Complete) socket = authenticate(*pendingPeer);
      std::optional<AuthenticatedPeer> peer;
      if (socket) {
        peer = AuthenticatedPeer{pendingPeer->request(), std::move(*socket)};
      } else {
        logMessage(LogLevel::Info, LogSubsystem::Net, "dropped a connection from ", pendingPeer->address.toString(),
                   ", which did not authenticate as a rank of this job");
      }
      pendingPeer = pendingPeers_.erase(pendingPeer);
      if (peer) return peer;
    }
    if (deadline.expired()) return std::nullopt;

    entries.assign(others.begin(), others.end());
    entries.insert(entries.end(), {queue_.pollEntry(), deadline.cancelEntry()});
    int timeout = queue_.pollTimeout(deadline.pollTimeout());
    for (const PendingPeer& pendingPeer : pendingPeers_) {
      entries.push_back(pollfd{pendingPeer.socket().get(), POLLIN, 0});
      timeout = std::min(timeout, pendingPeer.deadline().pollTimeout());
    }
    if (::poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) throw SysError("poll", errno);
    acceptConnections();
    const auto isReported = [](const pollfd& entry) { return entry.revents != 0; };
    if (std::any_of(entries.data(), entries.data() + others.size(), isReported)) return std::nullopt;
  }
}

}  // namespace mscclpp::detail
