#include "host/transport/tcp/handshake.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "host/net/retry.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

constexpr HandshakeProtocol protocol{magic, protocolVersion, "mscclpp tcp connecting", "mscclpp tcp accepting "};

// One attempt. Empty if another may succeed: `reason` then has the cause.
UniqueFd tryConnectTo(const EndpointInfo& target, const Id128& initiator, Deadline deadline, std::string& reason) {
  const std::string where = target.address.toString();
  int errorNumber = 0;
  UniqueFd socket = tryConnect(target.address, deadline, errorNumber);
  if (!socket && errorNumber == ECONNREFUSED) {
    throw Error("connect: connection refused at " + where +
                    "; the peer has ended, or its endpoint and context are gone: keep them until both sides have "
                    "connected",
                ErrorCode::RemoteError);
  }
  if (!socket) {
    reason = std::strerror(errorNumber);
    return UniqueFd();
  }
  const EndpointPair endpoints{target.id, initiator};
  const auto status = performHandshake(socket, protocol, deriveKey(target.secret), endpoints, deadline, reason);
  if (!status) return UniqueFd();
  switch (*status) {
    case ConnectStatus::Accepted:
      return socket;
    case ConnectStatus::VersionMismatch:
      throw Error("connect: the program that listens at " + where +
                      " is not mscclpp, or another version of it; use one version on all ranks",
                  ErrorCode::InvalidUsage);
    case ConnectStatus::AlreadyConnected:
      throw Error("connect: the peer's endpoint at " + where +
                      " has a connection already; make an endpoint for each connection",
                  ErrorCode::InvalidUsage);
    case ConnectStatus::OutOfDescriptors:
      throw Error("connect: the peer at " + where +
                      " has no file descriptor left for a connection (Too many open files); raise its limit of open "
                      "files, ulimit -n",
                  ErrorCode::RemoteError);
    case ConnectStatus::Unauthorized:
      break;
  }
  throw Error(
      "connect: endpoint not found at " + where + "; the peer must keep its endpoint until both sides have connected",
      ErrorCode::InvalidUsage);
}

}  // namespace

Key deriveKey(const Secret& secret) {
  return keyFromSecret(secret, "mscclpp tcp key");
}

UniqueFd connectToEndpoint(const EndpointInfo& target, const Id128& initiator, Deadline deadline) {
  const std::string where = target.address.toString();
  std::string reason;
  UniqueFd socket = retryUntil(deadline, 100ms, [&] { return tryConnectTo(target, initiator, deadline, reason); });
  if (socket) return socket;
  throw Error("connect: could not reach the peer at " + where + " within " + deadline.elapsedText() + " (" + reason +
                  "); may this host connect to it? MSCCLPP_SOCKET_IFNAME chooses the interface",
              ErrorCode::Timeout);
}

PendingPeer::PendingPeer(UniqueFd socket, Deadline deadline)
    : PendingHandshake(protocol, std::move(socket), deadline) {}

}  // namespace mscclpp::detail::tcp
