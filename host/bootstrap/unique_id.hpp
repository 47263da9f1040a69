// The contents of a UniqueId, and the ports that createUniqueId reserved in this process.
#pragma once

#include "host/base/unique_fd.hpp"
#include "host/bootstrap/handshake.hpp"
#include "host/net/socket_address.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::detail {

struct Rendezvous {
  SocketAddress address;
  Secret secret;
};

UniqueId toUniqueId(const Rendezvous& rendezvous);
/// Whether `id` was made by toUniqueId.
bool isUniqueId(const UniqueId& id);
/// Throws Error(InvalidUsage) unless `id` was made by toUniqueId.
Rendezvous fromUniqueId(const UniqueId& id);

/// Binds a port for a rendezvous and keeps it; if many are never used, the oldest are closed.
SocketAddress reservePort(const SocketAddress& localAddress);
/// Transfers the reserved socket to the caller; empty if this process has none for `address`.
UniqueFd claimReservedPort(const SocketAddress& address);
/// Called in a forked child that is not rank 0: closes the copy of the parent's socket, so that only rank 0 holds it.
void closeInheritedPort(const SocketAddress& address) noexcept;

/// The secret for a rendezvous at a given address: MSCCLPP_SECRET, or for loopback one derived from user and address,
/// which is not confidential. Throws Error(InvalidUsage) if there is none or it is too short.
Secret secretForAddress(const SocketAddress& address);
/// Same if other users can derive the secret.
AllowedUsers allowedUsersFor(const Rendezvous& rendezvous);

}  // namespace mscclpp::detail
