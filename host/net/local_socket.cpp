#include "host/net/local_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "host/net/retry.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

struct LocalAddress {
  explicit LocalAddress(const std::string& name) {
    if (name.size() + 1 > sizeof(address.sun_path)) {
      throw Error("a local socket's name is too long: " + name, ErrorCode::InternalError);
    }
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero byte: the abstract namespace
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t length;
};

}  // namespace

UniqueFd listenLocal(const std::string& name) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw SysError("cannot open a local socket", errno);
  const LocalAddress address(name);
  if (::bind(socket.get(), address.get(), address.length) != 0) throw SysError("cannot bind a local socket", errno);
  if (::listen(socket.get(), SOMAXCONN) != 0) throw SysError("cannot listen on a local socket", errno);
  return socket;
}

UniqueFd connectLocal(const std::string& name, Deadline deadline, int& errorNumber) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  errorNumber = errno;
  if (!socket) return UniqueFd();
  const LocalAddress address(name);
  retryUntil(deadline, std::chrono::milliseconds(1), [&] {
    errorNumber = ::connect(socket.get(), address.get(), address.length) == 0 ? 0 : errno;
    return errorNumber != EAGAIN && errorNumber != EINTR;
  });
  return errorNumber == 0 ? std::move(socket) : UniqueFd();
}

std::vector<std::string> findListeners(const std::string& prefix) {
  constexpr unsigned acceptsConnections = 1u << 16;  // __SO_ACCEPTCON of the kernel
  std::vector<std::string> names;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream columns(line);
    std::string number, references, protocol, flags, type, state, inode, name;
    if (!(columns >> number >> references >> protocol >> flags >> type >> state >> inode >> name)) continue;
    if (!name.starts_with('@' + prefix)) continue;
    if ((std::strtoul(flags.c_str(), nullptr, 16) & acceptsConnections) != 0) names.push_back(name.substr(1));
  }
  return names;
}

bool isSameUser(const UniqueFd& socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == ::geteuid();
}

}  // namespace mscclpp::detail
