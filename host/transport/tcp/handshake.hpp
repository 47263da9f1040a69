// The start of a TCP connection: the keyed handshake (host/net/handshake.hpp) under the key of the endpoint that is
// connected to. Its secret is in the serialised endpoint, sent over the bootstrap, which is authenticated itself.
#pragma once

#include "host/base/deadline.hpp"
#include "host/net/socket.hpp"
#include "host/transport/tcp/wire.hpp"

namespace mscclpp::detail::tcp {

Key deriveKey(const Secret& secret);

/// Connects to the endpoint that `target` describes, as endpoint `initiator`. Throws Error(RemoteError) if the
/// connection is refused or the peer has no descriptor for it, Error(InvalidUsage) if the endpoint has a connection or
/// does not know the secret, Error(Timeout) at the deadline.
UniqueFd connectToEndpoint(const EndpointInfo& target, const Id128& initiator, Deadline deadline);

/// The accepting side of a connection whose peer is not authenticated yet.
class PendingPeer : public PendingHandshake<EndpointPair> {
 public:
  /// An established, non-blocking connection.
  PendingPeer(UniqueFd socket, Deadline deadline);
};

}  // namespace mscclpp::detail::tcp
