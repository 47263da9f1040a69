#include "host/net/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

void setOption(const UniqueFd& socket, int level, int option) {
  const int one = 1;
  ::setsockopt(socket.get(), level, option, &one, sizeof(one));
}

UniqueFd openTcpSocket(const SocketAddress& address) {
  const int family = address.family == SocketAddress::Family::V6 ? AF_INET6 : AF_INET;
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) throw SysError("cannot open a socket", errno);
  return socket;
}

// Waits until the socket is ready or the deadline expires.
bool waitFor(const UniqueFd& socket, short events, Deadline deadline) {
  pollfd entries[] = {{socket.get(), events, 0}, deadline.cancelEntry()};
  while (true) {
    const int ready = ::poll(entries, std::size(entries), deadline.pollTimeout());
    if (ready < 0 && errno != EINTR) throw SysError("poll", errno);
    if (ready > 0 && entries[0].revents != 0) return true;
    if (ready >= 0 && deadline.expired()) return false;
  }
}

// No process listens there (yet): a later attempt may succeed.
bool mayListenLater(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EAGAIN:
    case EADDRNOTAVAIL:
      return true;
    default:
      return false;
  }
}

}  // namespace

UniqueFd bindTo(const SocketAddress& address) {
  UniqueFd socket = openTcpSocket(address);
  // A fixed port may be reused while connections of an earlier job linger. With a port chosen by the system the option
  // would be wrong: two sockets that do not listen yet could then be given the same one.
  if (address.port != 0) setOption(socket, SOL_SOCKET, SO_REUSEADDR);
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(storage);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
    if (errno == EADDRINUSE) {
      throw Error(address.toString() +
                      " is in use by another job or program: choose another port, or create the "
                      "UniqueId in the process of rank 0",
                  ErrorCode::InvalidUsage);
    }
    if (errno == EADDRNOTAVAIL) {
      throw Error(address.toString() + " is not an address of this host: give the address of the host of rank 0",
                  ErrorCode::InvalidUsage);
    }
    throw SysError("cannot bind to " + address.toString(), errno);
  }
  return socket;
}

void startListening(const UniqueFd& socket) {
  if (::listen(socket.get(), SOMAXCONN) == 0) return;
  const int error = errno;
  if (error == EADDRINUSE) {
    throw Error(localAddressOf(socket).toString() + " is in use by another job or program: choose another port",
                ErrorCode::InvalidUsage);
  }
  throw SysError("cannot listen on " + localAddressOf(socket).toString(), error);
}

UniqueFd acceptFrom(const UniqueFd& listener) {
  UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) setOption(socket, IPPROTO_TCP, TCP_NODELAY);  // a local socket has no such option
  return socket;
}

SocketAddress sourceAddressFor(const SocketAddress& destination) {
  // Connecting a datagram socket sends nothing: it makes the system choose a route.
  const int family = destination.family == SocketAddress::Family::V6 ? AF_INET6 : AF_INET;
  UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) throw SysError("cannot open a socket", errno);
  sockaddr_storage storage;
  const socklen_t length = destination.toSockaddr(storage);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
    throw SysError("there is no route to " + destination.toString(), errno);
  }
  SocketAddress local = localAddressOf(socket);
  local.port = 0;
  return local;
}

SocketAddress localAddressOf(const UniqueFd& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw SysError("getsockname", errno);
  }
  return SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage));
}

SocketAddress remoteAddressOf(const UniqueFd& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  // A peer that has disconnected has no address; its bytes can still be read.
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return SocketAddress{};
  return SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage));
}

namespace {

// An address and port in the format of /proc/net/tcp: words of 32 bits in the byte order of this machine.
std::string procText(const SocketAddress& address) {
  std::string text;
  char digits[9];
  for (std::size_t i = 0; i < (address.family == SocketAddress::Family::V6 ? 16u : 4u); i += 4) {
    std::uint32_t word;
    std::memcpy(&word, address.bytes.data() + i, sizeof(word));
    std::snprintf(digits, sizeof(digits), "%08X", word);
    text += digits;
  }
  std::snprintf(digits, sizeof(digits), ":%04X", address.port);
  return text + digits;
}

}  // namespace

std::optional<uid_t> loopbackPeerUser(const UniqueFd& socket) {
  const SocketAddress peer = remoteAddressOf(socket);
  if (!peer.isLoopback()) return std::nullopt;
  const std::string peerText = procText(peer), ownText = procText(localAddressOf(socket));
  std::ifstream sockets(peer.family == SocketAddress::Family::V6 ? "/proc/net/tcp6" : "/proc/net/tcp");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream columns(line);
    std::string slot, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    std::uint64_t timeout = 0, inode = 0;
    if (!(columns >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode)) {
      continue;
    }
    // A socket that no process holds any more is listed as root's, with no inode.
    if (local == peerText && remote == ownText && inode != 0) return user;
  }
  return std::nullopt;
}

UniqueFd tryConnect(const SocketAddress& address, Deadline deadline, int& errorNumber) {
  UniqueFd socket = openTcpSocket(address);
  setOption(socket, IPPROTO_TCP, TCP_NODELAY);
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(storage);
  errorNumber = 0;
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) errorNumber = errno;
  if (errorNumber == EINPROGRESS || errorNumber == EINTR) {
    if (waitFor(socket, POLLOUT, deadline)) {
      socklen_t size = sizeof(errorNumber);
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &errorNumber, &size);
    } else {
      errorNumber = ETIMEDOUT;
    }
  }
  if (errorNumber == 0) {
    // TCP connects a socket to itself if the system assigns it the very port that it connects to: there is no peer.
    if (!(localAddressOf(socket) == address)) return socket;
    errorNumber = ECONNREFUSED;
  }
  if (!mayListenLater(errorNumber)) throw SysError("cannot connect to " + address.toString(), errorNumber);
  return UniqueFd();
}

bool waitReadable(const UniqueFd& socket, Deadline deadline) {
  return waitFor(socket, POLLIN, deadline);
}

TransferStatus sendAll(const UniqueFd& socket, const void* data, std::size_t size, Deadline deadline) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::send(socket.get(), next, size, MSG_NOSIGNAL);
    if (count >= 0) {
      next += count;
      size -= static_cast<std::size_t>(count);
    } else if (wouldBlock(errno)) {
      if (!waitFor(socket, POLLOUT, deadline)) return TransferStatus::TimedOut;
    } else if (errno != EINTR) {
      return TransferStatus::Closed;
    }
  }
  return TransferStatus::Done;
}

TransferStatus recvAll(const UniqueFd& socket, void* data, std::size_t size, Deadline deadline) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = ::recv(socket.get(), next, size, 0);
    if (count > 0) {
      next += count;
      size -= static_cast<std::size_t>(count);
    } else if (count == 0) {
      return TransferStatus::Closed;
    } else if (wouldBlock(errno)) {
      if (!waitFor(socket, POLLIN, deadline)) return TransferStatus::TimedOut;
    } else if (errno != EINTR) {
      return TransferStatus::Closed;
    }
  }
  return TransferStatus::Done;
}

bool wouldBlock(int errorNumber) {
  return errorNumber == EAGAIN || errorNumber == EWOULDBLOCK;
}

bool isClosed(const UniqueFd& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace mscclpp::detail
