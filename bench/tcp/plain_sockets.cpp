#include "plain_sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::perf {

namespace {

int check(int result, const char* call) {
  if (result < 0) throw SysError(call, errno);
  return result;
}

}  // namespace

PlainSockets::PlainSockets() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = check(::socket(AF_INET, SOCK_STREAM, 0), "socket");
  check(::bind(listener, generic, size), "bind");
  check(::listen(listener, 1), "listen");
  check(::getsockname(listener, generic, &size), "getsockname");
  ends_[0] = check(::socket(AF_INET, SOCK_STREAM, 0), "socket");
  check(::connect(ends_[0], generic, size), "connect");
  ends_[1] = check(::accept(listener, nullptr, nullptr), "accept");
  ::close(listener);
  const int one = 1;
  for (int end : ends_) check(::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "setsockopt");
}

PlainSockets::~PlainSockets() {
  for (int end : ends_) ::close(end);
}

void PlainSockets::transfer(int end, char* data, std::size_t size, bool out) const {
  while (size > 0) {
    const ssize_t count = out ? ::send(ends_[end], data, size, MSG_NOSIGNAL) : ::recv(ends_[end], data, size, 0);
    if (count <= 0) throw SysError(out ? "send" : "recv", errno);
    data += count;
    size -= static_cast<std::size_t>(count);
  }
}

}  // namespace mscclpp::perf
