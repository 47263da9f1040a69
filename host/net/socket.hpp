// TCP sockets with deadlines: non-blocking, closed on exec, never raising SIGPIPE.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"
#include "host/net/socket_address.hpp"

namespace mscclpp::detail {

/// A socket bound to `address` that does not listen yet: it reserves the port, and connections to it are refused. With
/// port 0 the system chooses one. Throws SysError, or Error(InvalidUsage) if the address is in use or not of this host.
UniqueFd bindTo(const SocketAddress& address);

/// Starts listening on a bound socket.
void startListening(const UniqueFd& socket);

/// The next connection in the queue of a listener, TCP or local; empty (see errno) if none can be accepted now. It does
/// not block. AcceptQueue handles a shortage of descriptors too.
UniqueFd acceptFrom(const UniqueFd& listener);

/// The address of this host, port 0, from which it would connect to `destination`.
SocketAddress sourceAddressFor(const SocketAddress& destination);
SocketAddress localAddressOf(const UniqueFd& socket);
SocketAddress remoteAddressOf(const UniqueFd& socket);

/// The user whose process holds the other end of a connection over loopback; empty if that end is closed, or not on
/// this host.
std::optional<uid_t> loopbackPeerUser(const UniqueFd& socket);

/// Connects, or returns an empty UniqueFd if no process listens there (yet): the caller may retry. `errorNumber` then
/// has the reason. Throws SysError if another attempt cannot succeed.
UniqueFd tryConnect(const SocketAddress& address, Deadline deadline, int& errorNumber);

/// Waits until the socket is readable, or the peer has closed it. False at the deadline.
bool waitReadable(const UniqueFd& socket, Deadline deadline);

enum class TransferStatus { Done, Closed, TimedOut };

/// Transfers exactly `size` bytes. Closed: the peer closed or reset the connection.
TransferStatus sendAll(const UniqueFd& socket, const void* data, std::size_t size, Deadline deadline);
TransferStatus recvAll(const UniqueFd& socket, void* data, std::size_t size, Deadline deadline);

/// Whether a call on a socket failed with this error only because it would have had to wait.
bool wouldBlock(int errorNumber);

/// Whether the peer has closed or reset the connection; what it sent before can still be received.
bool isClosed(const UniqueFd& socket);

}  // namespace mscclpp::detail
