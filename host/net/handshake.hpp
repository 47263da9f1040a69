// The keyed handshake: two processes authenticate to each other with a shared key.
//
// The accepting side sends a challenge with a fresh nonce. The connecting side answers with a request: a payload whose
// type depends on the protocol, its own nonce, and an authentication tag. The accepting side replies with a status and
// a tag of its own. A tag is a MAC under the key over the side's label, the challenge, the request and the status, so
// it is valid only for this connection, payload and direction. An unauthenticated client learns only a nonce and a
// status. Structures are sent as their bytes.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"
#include "host/net/authentication.hpp"
#include "host/net/socket.hpp"

namespace mscclpp::detail {

/// Distinguishes one protocol from another. Both labels have the same length.
struct HandshakeProtocol {
  std::uint64_t magic;
  std::uint32_t version;
  std::string_view connectorLabel, acceptorLabel;
};

struct Challenge {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Nonce nonce;
};

template <class Payload>
struct HandshakeRequest {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Payload payload;
  Nonce nonce;
  AuthTag authTag;
};

enum class HandshakeStatus : std::uint32_t {
  Accepted = 1,
  Unauthorized = 2,
  VersionMismatch = 3,
  AlreadyConnected = 4,
  OutOfDescriptors = 5,  ///< the accepting process has no descriptors left
};

struct HandshakeReply {
  std::uint64_t magic;
  HandshakeStatus status;
  std::uint32_t reserved;
  AuthTag authTag;
};

/// The tag of one side; any tag in the request is ignored.
template <class Payload>
AuthTag computeHandshakeTag(const Key& key, std::string_view label, const Challenge& challenge,
                            HandshakeRequest<Payload> request, HandshakeStatus status) {
  request.authTag = {};
  return computeAuthTag(key, {label, bytesOf(challenge), bytesOf(request), bytesOf(status)});
}

/// The connecting side, over an established connection. Returns the other side's reply: Accepted only if it knows the
/// key, Unauthorized if it does not. Empty if it did not reply: `reason` then has the cause, and another attempt may
/// succeed. `isExpectedPeer` is called once the other side has shown that it has accepted the connection, and before
/// anything is sent to it; it returns false, and sets `reason`, to give up.
template <class Payload>
std::optional<HandshakeStatus> performHandshake(
    const UniqueFd& socket, const HandshakeProtocol& protocol, const Key& key, const Payload& payload,
    Deadline deadline, std::string& reason, const std::function<bool()>& isExpectedPeer = [] { return true; }) {
  const auto isDone = [&](TransferStatus transfer) {
    reason = transfer == TransferStatus::Closed ? "it closed the connection" : "it did not answer";
    return transfer == TransferStatus::Done;
  };
  Challenge challenge;
  if (!isDone(recvAll(socket, &challenge, sizeof(challenge), deadline))) return std::nullopt;
  if (challenge.magic != protocol.magic || challenge.version != protocol.version) {
    return HandshakeStatus::VersionMismatch;
  }
  if (!isExpectedPeer()) return std::nullopt;
  HandshakeRequest<Payload> request{protocol.magic, protocol.version, 0, payload, makeNonce(), {}};
  request.authTag = computeHandshakeTag(key, protocol.connectorLabel, challenge, request, HandshakeStatus::Accepted);
  if (!isDone(sendAll(socket, &request, sizeof(request), deadline))) return std::nullopt;
  HandshakeReply reply;
  if (!isDone(recvAll(socket, &reply, sizeof(reply), deadline))) return std::nullopt;
  if (reply.magic != protocol.magic) return HandshakeStatus::VersionMismatch;
  // These need no tag: a process that can forge them could just as well close the connection.
  if (reply.status == HandshakeStatus::Unauthorized || reply.status == HandshakeStatus::VersionMismatch) {
    return reply.status;
  }
  const AuthTag expected = computeHandshakeTag(key, protocol.acceptorLabel, challenge, request, reply.status);
  return constantTimeEqual(reply.authTag, expected) ? reply.status : HandshakeStatus::Unauthorized;
}

/// The accepting side of a connection whose peer is not authenticated yet: sends the challenge and collects the
/// request, without ever blocking.
template <class Payload>
class PendingHandshake {
 public:
  /// An established, non-blocking connection.
  PendingHandshake(const HandshakeProtocol& protocol, UniqueFd socket, Deadline deadline)
      : protocol_(protocol),
        socket_(std::move(socket)),
        deadline_(deadline),
        challenge_{protocol.magic, protocol.version, 0, makeNonce()} {
    // The send buffer of a new connection has space for a few bytes. If it does not, the handshake does not complete.
    [[maybe_unused]] const ssize_t sent = ::send(socket_.get(), &challenge_, sizeof(challenge_), MSG_NOSIGNAL);
  }

  enum class State { Waiting, Complete, Closed };
  /// Receives what has arrived. Closed: the peer has closed the connection, or uses another protocol.
  State receive() {
    char* bytes = reinterpret_cast<char*>(&request_);
    while (received_ < sizeof(request_)) {
      const ssize_t count = ::recv(socket_.get(), bytes + received_, sizeof(request_) - received_, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::Waiting;
      if (count <= 0) return State::Closed;
      received_ += static_cast<std::size_t>(count);
      // Anything else is rejected as soon as it is recognised.
      if (received_ >= sizeof(request_.magic) && request_.magic != protocol_.magic) return State::Closed;
    }
    if (request_.version == protocol_.version) return State::Complete;
    reply(HandshakeStatus::VersionMismatch, std::nullopt);
    return State::Closed;
  }

  const Deadline& deadline() const noexcept { return deadline_; }
  const UniqueFd& socket() const noexcept { return socket_; }

  /// Once complete; to be trusted only if verify() succeeds.
  const Payload& request() const noexcept { return request_.payload; }
  bool verify(const Key& key) const {
    return constantTimeEqual(request_.authTag, computeHandshakeTag(key, protocol_.connectorLabel, challenge_, request_,
                                                                   HandshakeStatus::Accepted));
  }

  /// Completes the handshake; with a tag if the key is known. Returns whether the reply was sent. The socket stays
  /// here: the caller closes it, or takes it after HandshakeStatus::Accepted.
  bool reply(HandshakeStatus status, const std::optional<Key>& key) {
    HandshakeReply reply{protocol_.magic, status, 0, {}};
    if (key) reply.authTag = computeHandshakeTag(*key, protocol_.acceptorLabel, challenge_, request_, status);
    return ::send(socket_.get(), &reply, sizeof(reply), MSG_NOSIGNAL) == sizeof(reply);
  }
  UniqueFd takeSocket() noexcept { return std::move(socket_); }

 private:
  HandshakeProtocol protocol_;
  UniqueFd socket_;
  Deadline deadline_;
  Challenge challenge_;
  HandshakeRequest<Payload> request_{};
  std::size_t received_ = 0;
};

}  // namespace mscclpp::detail
