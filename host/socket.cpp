#include "socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

namespace {

void setOption(const UniqueFd& socket, int level, int option) {
  const int one = 1;
  ::setsockopt(socket.get(), level, option, &one, sizeof(one));
}

UniqueFd makeSocket(const SocketAddress& address) {
  const int family = address.family == SocketAddress::Family::V6 ? AF_INET6 : AF_INET;
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) throw SysError("cannot open a socket", errno);
  return socket;
}

// Waits until the socket is ready or the time is up.
bool waitFor(const UniqueFd& socket, short events, Deadline deadline) {
  pollfd entry{socket.get(), events, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, deadline.pollTimeout());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw SysError("poll", errno);
    if (ready == 0 && deadline.expired()) return false;
  }
}

bool wouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

// Nobody is there, or not yet: a later attempt may succeed.
bool isAbsence(int error) {
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
  UniqueFd socket = makeSocket(address);
  // A prescribed port may be reused while connections of an earlier job linger. With a port of the system's choice
  // the option would be wrong: two sockets that do not listen yet could then be given the same one.
  if (address.port != 0) setOption(socket, SOL_SOCKET, SO_REUSEADDR);
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(storage);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
    if (errno == EADDRINUSE) {
      throw Error(address.toString() + " is in use by another job or program: choose another port",
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
  if (socket) setOption(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

SocketAddress localAddressTowards(const SocketAddress& destination) {
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
  // A peer that has gone already has no address; its bytes may still be read.
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return SocketAddress{};
  return SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage));
}

UniqueFd tryConnect(const SocketAddress& address, Deadline deadline, int& errorNumber) {
  UniqueFd socket = makeSocket(address);
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
    // TCP lets a socket meet itself when the system gives it the very port that it dials: nobody else is there.
    if (!(localAddressOf(socket) == address)) return socket;
    errorNumber = ECONNREFUSED;
  }
  if (!isAbsence(errorNumber)) throw SysError("cannot connect to " + address.toString(), errorNumber);
  return UniqueFd();
}

Transfer sendAll(const UniqueFd& socket, const void* data, std::size_t size, Deadline deadline) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::send(socket.get(), next, size, MSG_NOSIGNAL);
    if (count >= 0) {
      next += count;
      size -= static_cast<std::size_t>(count);
    } else if (wouldBlock(errno)) {
      if (!waitFor(socket, POLLOUT, deadline)) return Transfer::TimedOut;
    } else if (errno != EINTR) {
      return Transfer::Closed;
    }
  }
  return Transfer::Done;
}

Transfer recvAll(const UniqueFd& socket, void* data, std::size_t size, Deadline deadline) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = ::recv(socket.get(), next, size, 0);
    if (count > 0) {
      next += count;
      size -= static_cast<std::size_t>(count);
    } else if (count == 0) {
      return Transfer::Closed;
    } else if (wouldBlock(errno)) {
      if (!waitFor(socket, POLLIN, deadline)) return Transfer::TimedOut;
    } else if (errno != EINTR) {
      return Transfer::Closed;
    }
  }
  return Transfer::Done;
}

bool isClosed(const UniqueFd& socket) {
  char byte;
  const ssize_t count = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && !wouldBlock(errno) && errno != EINTR);
}

bool isOutOfDescriptors(int errorNumber) {
  return errorNumber == EMFILE || errorNumber == ENFILE || errorNumber == ENOBUFS || errorNumber == ENOMEM;
}

}  // namespace mscclpp::detail
