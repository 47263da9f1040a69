// What a UniqueId holds, and the ports that createUniqueId reserved in this process.
#pragma once

#include "handshake.hpp"
#include "mscclpp/host/bootstrap.hpp"
#include "socket_address.hpp"
#include "unique_fd.hpp"

namespace mscclpp::detail {

struct Rendezvous {
  SocketAddress address;
  Secret secret;
};

UniqueId toUniqueId(const Rendezvous& rendezvous);
/// Throws Error(InvalidUsage) unless `id` came out of toUniqueId unharmed.
Rendezvous fromUniqueId(const UniqueId& id);

/// Binds a port for a rendezvous and keeps it; of many that are never used, the oldest are given up.
SocketAddress reservePort(const SocketAddress& localAddress);
/// Hands over the reserved socket, or an empty one if this process has none for `address`.
UniqueFd takeReservedPort(const SocketAddress& address);
/// In a forked child that is not rank 0: closes the copy of the parent's socket, so that only rank 0 holds it.
void dropInheritedPort(const SocketAddress& address) noexcept;

/// The secret for a rendezvous at a given address: MSCCLPP_SECRET, or for loopback one derived from user and address.
/// Throws Error(InvalidUsage) if there is none or it is too short.
Secret secretForAddress(const SocketAddress& address);

}  // namespace mscclpp::detail
