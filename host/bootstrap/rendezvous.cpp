#include "host/bootstrap/rendezvous.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "host/base/error_message.hpp"
#include "host/base/printable_text.hpp"
#include "host/base/process_identity.hpp"
#include "host/bootstrap/handshake.hpp"
#include "host/bootstrap/rank_list.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr const char* operation = "initialize";
// Rank 0 has the best information on why a rendezvous failed: the others wait this much longer for its report.
constexpr std::chrono::milliseconds errorGracePeriod = 500ms;
constexpr std::size_t maxErrorTextBytes = 2048;
// For this long rank 0 tells ranks that come after an error: they would else try to join it until their deadline.
constexpr std::chrono::milliseconds lateRankPeriod = 3s;

// The reply of rank 0 to each rank that joined: the table of all ranks, or an error. `size` bytes follow.
struct JoinReply {
  enum class Kind : std::uint32_t { PeerTable = 1, Error = 2 };
  Kind kind;
  std::int32_t errorCode;
  std::uint64_t size;
  Nonce sessionNonce;
};

struct PeerAddress {
  SocketAddress address;
  std::uint64_t hostHash;
};
static_assert(std::has_unique_object_representations_v<JoinReply> &&
              std::has_unique_object_representations_v<PeerAddress>);

// --- rank 0 ------------------------------------------------------------------------------------------------------

class Coordinator {
 public:
  Coordinator(const LocalRankInfo& self, const Rendezvous& rendezvous)
      : self_(self),
        acceptor_(listener(rendezvous.address), keyFromSecret(rendezvous.secret), Purpose::Join, 0,
                  static_cast<std::size_t>(self.numRanks), allowedUsersFor(rendezvous)),
        peers_(self.numRanks) {}

  void acceptRanks(const PeerMesh& mesh, Deadline deadline) {
    std::optional<Acceptor::AuthenticatedPeer> newPeer;
    try {
      // Rank 0 needs no interface, but one that it does not have may be a mistake on all ranks.
      if (!self_.interfaces.empty()) chooseLocalAddress(self_.interfaces, self_.family);
      for (int missing = self_.numRanks - 1; missing > 0;) {
        newPeer = acceptor_.accept(deadline, peerEntries());
        mesh.check(operation);
        if (newPeer) {
          if (addPeer(*newPeer)) --missing;
        } else if (deadline.expired()) {
          throw Error("not all ranks arrived within " + deadline.elapsedText() + ": " +
                          missingRanksText(missingRanks(), static_cast<std::size_t>(self_.numRanks)) +
                          "; were they started, and with the same UniqueId or address?",
                      ErrorCode::Timeout);
        }
        checkForDisconnects();
      }
    } catch (const std::exception& error) {
      int told = 0;
      if (newPeer && newPeer->socket) {
        sendError(newPeer->socket, error);
        // A rank that was missing, unless it is one too many.
        const int rank = newPeer->peerInfo.rank;
        if (rank > 0 && rank < self_.numRanks && !peers_[rank]) ++told;
      }
      for (auto& acceptedPeer : peers_) {
        if (!acceptedPeer) continue;
        sendError(acceptedPeer->socket, error);
        ++told;
      }
      // Other errors are not of the ranks' arguments: they come when ranks are missing, or are to end the call at once.
      const auto* own = dynamic_cast<const BaseError*>(&error);
      const bool hasGivenUp = newPeer && newPeer->peerInfo.numRanks == 0;
      if (hasGivenUp || (own != nullptr && codeOf(*own) == ErrorCode::InvalidUsage)) {
        refuse(error, self_.numRanks - 1 - told, deadline);
      }
      throw;
    }
  }

  /// Tells `count` ranks that have not joined yet why they cannot, if they come soon. Returns how many have.
  int refuse(const std::exception& reason, int count, const Deadline& deadline) noexcept {
    int told = 0;
    try {
      const Deadline end = deadline.limitedTo(lateRankPeriod);
      while (told < count && !end.expired()) {
        const auto late = acceptor_.accept(end);
        if (!late) continue;
        sendError(late->socket, reason);
        ++told;
      }
    } catch (const std::exception&) {  // the others time out
    }
    return told;
  }

  std::vector<std::uint64_t> sendPeerTable(PeerMesh& mesh, Deadline deadline) {
    std::vector<PeerAddress> peers(self_.numRanks);
    peers[0].hostHash = self_.hostHash;
    for (int rank = 1; rank < self_.numRanks; ++rank) {
      peers[rank] = {peers_[rank]->peerInfo.listenAddress, peers_[rank]->peerInfo.hostHash};
    }
    const JoinReply reply{JoinReply::Kind::PeerTable, 0, peers.size() * sizeof(PeerAddress), makeNonce()};
    int unreachable = 0;
    for (int rank = 1; rank < self_.numRanks; ++rank) {
      const UniqueFd& socket = peers_[rank]->socket;
      const bool sent = sendAll(socket, &reply, sizeof(reply), deadline) == TransferStatus::Done &&
                        sendAll(socket, peers.data(), reply.size, deadline) == TransferStatus::Done;
      if (!sent && unreachable == 0) unreachable = rank;
    }
    // Even if one has failed: the mesh then reports it to the others.
    for (int rank = 1; rank < self_.numRanks; ++rank) mesh.addPeer(rank, std::move(peers_[rank]->socket));
    if (unreachable != 0) {
      throw Error("rank " + std::to_string(unreachable) + " ended during the rendezvous", ErrorCode::RemoteError);
    }
    std::vector<std::uint64_t> hashes;
    for (const PeerAddress& peer : peers) hashes.push_back(peer.hostHash);
    return hashes;
  }

 private:
  static UniqueFd listener(const SocketAddress& address) {
    UniqueFd reserved = claimReservedPort(address);
    return reserved ? std::move(reserved) : bindTo(address);
  }

  // Returns whether the peer is one that was missing.
  bool addPeer(Acceptor::AuthenticatedPeer& newPeer) {
    const PeerInfo& info = newPeer.peerInfo;
    if (info.numRanks == 0) {
      throw Error("rank " + std::to_string(info.rank) + " cannot join, because of an error that it has reported",
                  ErrorCode::RemoteError);
    }
    if (info.numRanks != self_.numRanks) {
      throw Error("rank " + std::to_string(info.rank) + " was started for a job of " + std::to_string(info.numRanks) +
                      " ranks, rank 0 for one of " + std::to_string(self_.numRanks),
                  ErrorCode::InvalidUsage);
    }
    if (info.rank <= 0 || info.rank >= self_.numRanks) {
      throw Error("a process joined as rank " + std::to_string(info.rank) +
                      ", but the ranks that join rank 0 are 1 to " + std::to_string(self_.numRanks - 1),
                  ErrorCode::InvalidUsage);
    }
    auto& slot = peers_[info.rank];
    const bool isNew = !slot;
    // A rank whose first attempt was interrupted may join again; two running processes with the same rank are an error.
    if (slot && !isClosed(slot->socket)) {
      throw Error("rank " + std::to_string(info.rank) + " joined twice, from " +
                      remoteAddressOf(slot->socket).toString() + " and " + remoteAddressOf(newPeer.socket).toString() +
                      ": give each process a rank of its own",
                  ErrorCode::InvalidUsage);
    }
    slot = std::move(newPeer);
    return isNew;
  }

  // For poll(2), which reports a peer that closes its connection.
  std::vector<pollfd> peerEntries() const {
    std::vector<pollfd> entries;
    for (const auto& peer : peers_) {
      if (peer) entries.push_back({peer->socket.get(), POLLRDHUP, 0});
    }
    return entries;
  }

  void checkForDisconnects() const {
    for (const auto& newPeer : peers_) {
      if (newPeer && isClosed(newPeer->socket)) {
        throw Error(
            "rank " + std::to_string(newPeer->peerInfo.rank) + " ended or timed out while other ranks were missing",
            ErrorCode::RemoteError);
      }
    }
  }

  std::vector<int> missingRanks() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.numRanks; ++rank) {
      if (!peers_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  static void sendError(const UniqueFd& socket, const std::exception& error) {
    const auto* own = dynamic_cast<const BaseError*>(&error);
    const std::string text = messageOf(error);
    const std::string_view errorText = std::string_view(text).substr(0, maxErrorTextBytes);
    ErrorCode code = own != nullptr ? codeOf(*own) : ErrorCode::InternalError;
    if (code == ErrorCode::Aborted) code = ErrorCode::RemoteError;
    const JoinReply reply{JoinReply::Kind::Error, static_cast<std::int32_t>(code), errorText.size(), {}};
    const Deadline soon = Deadline::after(100ms);
    if (sendAll(socket, &reply, sizeof(reply), soon) == TransferStatus::Done)
      sendAll(socket, errorText.data(), errorText.size(), soon);
  }

  const LocalRankInfo& self_;
  Acceptor acceptor_;
  std::vector<std::optional<Acceptor::AuthenticatedPeer>> peers_;
};

// --- the other ranks ---------------------------------------------------------------------------------------------

struct PeerTable {
  Nonce sessionNonce;
  std::vector<PeerAddress> peers;
};

PeerTable receivePeerTable(const LocalRankInfo& self, const UniqueFd& socket, const SocketAddress& address,
                           Deadline deadline) {
  const auto receive = [&](void* data, std::size_t size) {
    switch (recvAll(socket, data, size, deadline)) {
      case TransferStatus::Done:
        return;
      case TransferStatus::Closed:
        throw Error("rank 0 at " + address.toString() + " ended before all ranks were connected",
                    ErrorCode::RemoteError);
      case TransferStatus::TimedOut:
        throw Error("rank " + std::to_string(self.rank) + " reached rank 0 at " + address.toString() +
                        ", but not all ranks arrived within " + deadline.elapsedText() + "; were all of them started?",
                    ErrorCode::Timeout);
    }
  };
  JoinReply reply;
  receive(&reply, sizeof(reply));
  if (reply.kind == JoinReply::Kind::Error && reply.size <= maxErrorTextBytes) {
    std::string errorText(reply.size, '\0');
    receive(errorText.data(), errorText.size());
    throw Error("rank 0 ended the rendezvous: " + printableText(errorText), static_cast<ErrorCode>(reply.errorCode));
  }
  PeerTable table{reply.sessionNonce, std::vector<PeerAddress>(self.numRanks)};
  if (reply.kind != JoinReply::Kind::PeerTable || reply.size != table.peers.size() * sizeof(PeerAddress)) {
    throw Error("rank 0 at " + address.toString() + " sent a table that cannot be read", ErrorCode::RemoteError);
  }
  receive(table.peers.data(), reply.size);
  return table;
}

std::vector<std::uint64_t> joinPeers(const LocalRankInfo& self, const Rendezvous& rendezvous, PeerMesh& mesh,
                                     Deadline deadline) {
  closeInheritedPort(rendezvous.address);
  const SocketAddress local =
      self.interfaces.empty() ? sourceAddressFor(rendezvous.address) : chooseLocalAddress(self.interfaces, self.family);
  UniqueFd listener = bindTo(local);
  startListening(listener);
  const Key key = keyFromSecret(rendezvous.secret);
  PeerInfo peerInfo{Purpose::Join, self.rank, self.numRanks, 0, self.hostHash, localAddressOf(listener)};
  UniqueFd coordinator =
      connectAndAuthenticate(rendezvous.address, key, peerInfo, deadline, allowedUsersFor(rendezvous));
  const PeerTable table =
      receivePeerTable(self, coordinator, rendezvous.address, deadline.extendedBy(errorGracePeriod));

  // From here on rank 0 monitors all ranks, and its failure reports reach this rank over the mesh.
  mesh.addPeer(0, std::move(coordinator));
  const Key sessionKey = deriveSessionKey(key, table.sessionNonce);
  peerInfo.purpose = Purpose::Mesh;
  for (int peer = 1; peer < self.rank; ++peer) {
    SocketAddress address = table.peers[peer].address;
    if (address.isLinkLocal()) address.scope = local.scope;  // interface indices are valid on their own host only
    peerInfo.peer = peer;
    mesh.addPeer(peer, connectAndAuthenticate(address, sessionKey, peerInfo, deadline));
  }
  Acceptor acceptor(std::move(listener), sessionKey, Purpose::Mesh, self.rank, self.numRanks);
  std::vector<bool> arrived(self.numRanks, false);
  for (int missing = self.numRanks - 1 - self.rank; missing > 0;) {
    auto newPeer = acceptor.accept(deadline);
    mesh.check(operation);
    if (newPeer) {
      const int peer = newPeer->peerInfo.rank;
      if (peer <= self.rank || peer >= self.numRanks || arrived[peer]) continue;
      arrived[peer] = true;
      --missing;
      mesh.addPeer(peer, std::move(newPeer->socket));
    } else if (deadline.expired()) {
      std::vector<int> ranks;
      for (int peer = self.rank + 1; peer < self.numRanks; ++peer) {
        if (!arrived[peer]) ranks.push_back(peer);
      }
      throw Error("rank " + std::to_string(self.rank) + " timed out after " + deadline.elapsedText() +
                      " waiting for a connection from rank " + rankList(ranks) + " at " +
                      sourceAddressFor(rendezvous.address).toString() + ": can those hosts connect to this one?",
                  ErrorCode::Timeout);
    }
  }
  std::vector<std::uint64_t> hashes;
  for (const PeerAddress& peer : table.peers) hashes.push_back(peer.hostHash);
  return hashes;
}

}  // namespace

std::vector<std::uint64_t> connectAllRanks(const LocalRankInfo& self, const Rendezvous& rendezvous, PeerMesh& mesh,
                                           Deadline deadline) {
  if (self.rank != 0) return joinPeers(self, rendezvous, mesh, deadline);
  if (self.numRanks == 1) {
    claimReservedPort(rendezvous.address);
    return {self.hostHash};
  }
  Coordinator coordinator(self, rendezvous);
  coordinator.acceptRanks(mesh, deadline);
  return coordinator.sendPeerTable(mesh, deadline.extendedBy(errorGracePeriod));
}

int refuseRanks(const LocalRankInfo& self, const Rendezvous& rendezvous, const std::exception& reason, int count) {
  return count > 0 ? Coordinator(self, rendezvous).refuse(reason, count, Deadline::after(lateRankPeriod)) : 0;
}

bool giveUpJoining(int rank, const Rendezvous& rendezvous) noexcept {
  try {
    connectAndAuthenticate(rendezvous.address, keyFromSecret(rendezvous.secret),
                           {Purpose::Join, rank, 0, 0, hostHash(), rendezvous.address}, Deadline::after(lateRankPeriod),
                           allowedUsersFor(rendezvous));
    return true;
  } catch (const std::exception&) {  // the others time out
    return false;
  }
}

}  // namespace mscclpp::detail
