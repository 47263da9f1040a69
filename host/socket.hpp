// TCP sockets with deadlines: non-blocking, closed on exec, never raising SIGPIPE.
#pragma once

#include <cstddef>

#include "deadline.hpp"
#include "socket_address.hpp"
#include "unique_fd.hpp"

namespace mscclpp::detail {

/// A socket bound to `address` but not yet listening: it holds the port, and connections to it are refused. With
/// port 0 the system picks one. Throws SysError, or Error(InvalidUsage) if the address is taken or not this host's.
UniqueFd bindTo(const SocketAddress& address);

/// Starts to accept on a bound socket.
void startListening(const UniqueFd& socket);

/// The next waiting connection, or nothing if there is none that can be had now.
UniqueFd acceptFrom(const UniqueFd& listener);

/// The address of this host, port 0, from which it would reach `destination`.
SocketAddress localAddressTowards(const SocketAddress& destination);
SocketAddress localAddressOf(const UniqueFd& socket);
SocketAddress remoteAddressOf(const UniqueFd& socket);

/// Connects, or returns an empty UniqueFd if nobody answers there (yet); the caller may try again. `errorNumber` then
/// says why. Throws SysError if trying again is in vain.
UniqueFd tryConnect(const SocketAddress& address, Deadline deadline, int& errorNumber);

enum class Transfer { Done, Closed, TimedOut };

/// Moves exactly `size` bytes. Closed: the peer closed or reset the connection.
Transfer sendAll(const UniqueFd& socket, const void* data, std::size_t size, Deadline deadline);
Transfer recvAll(const UniqueFd& socket, void* data, std::size_t size, Deadline deadline);

/// Whether accepting failed with this error number because the process or the system has no descriptors or memory left: who knocked still waits.
bool isOutOfDescriptors(int errorNumber);

/// Whether the peer has closed the connection, without taking data from it.
bool isClosed(const UniqueFd& socket);

}  // namespace mscclpp::detail
