#include "fd_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/host/error.hpp"
#include "service_thread.hpp"
#include "socket.hpp"

namespace mscclpp::detail {

namespace {

using Clock = std::chrono::steady_clock;

// A peer sends its token at once; who does not is no peer.
constexpr auto clientPatience = std::chrono::seconds(5);
constexpr std::size_t maxClients = 64;

struct Address {
  sockaddr_un socket{};
  socklen_t length = 0;
};

Address addressOf(const Id128& name) {
  constexpr char prefix[] = "mscclpp-fd-";
  constexpr char digits[] = "0123456789abcdef";
  std::string text = prefix;
  for (std::uint8_t byte : name) text += {digits[byte >> 4], digits[byte & 15]};
  Address address;
  address.socket.sun_family = AF_UNIX;
  // A leading zero byte selects the abstract namespace.
  std::memcpy(address.socket.sun_path + 1, text.data(), text.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

bool isOfThisUser(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.uid == ::geteuid();
}

// A call has taken its slice of the time, or was disturbed: it may be made again.
bool isInterruption(int errorNumber) {
  return errorNumber == EAGAIN || errorNumber == EWOULDBLOCK || errorNumber == EINTR;
}

bool sendFd(int socket, int fd) {
  char status = 1;
  iovec data{&status, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

[[noreturn]] void failUnanswered(const Deadline& deadline) {
  throw Error(
      "the process that owns the memory has not answered for " + deadline.passed() + "; it is stopped, or has ended",
      ErrorCode::Timeout);
}

// One byte and one descriptor. Every descriptor that came along is owned before anything can throw.
UniqueFd receiveFd(int socket, Deadline deadline) {
  char status = 0;
  iovec data{&status, 1};
  constexpr std::size_t room = 4;
  alignas(cmsghdr) char control[CMSG_SPACE(room * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t count;
  while ((count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && isInterruption(errno)) {
    if (deadline.expired()) failUnanswered(deadline);
  }
  if (count < 0 && errno != ECONNRESET) throw SysError("recvmsg for a memory descriptor", errno);
  std::vector<UniqueFd> received;
  if (count > 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < fds; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        received.emplace_back(fd);
      }
    }
  }
  if (count <= 0 || received.size() != 1) {
    throw Error("the process that registered the memory no longer offers it; keep the RegisteredMemory alive there",
                ErrorCode::RemoteError);
  }
  return std::move(received.front());
}

}  // namespace

// A connection on which less than a token has arrived so far.
class FdServer::Client {
 public:
  Client(UniqueFd fd, Clock::time_point arrived) : socket(std::move(fd)), deadline(arrived + clientPatience) {}

  UniqueFd socket;
  Clock::time_point deadline;
  Id128 token{};
  std::size_t received = 0;
};

std::shared_ptr<FdServer> FdServer::create() {
  return std::shared_ptr<FdServer>(new FdServer());
}

FdServer::FdServer() : name_(randomId()), ownerPid_(::getpid()) {
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) throw SysError("socket for passing memory descriptors", errno);
  const Address address = addressOf(name_);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0) {
    throw SysError("bind of the socket for passing memory descriptors", errno);
  }
  if (::listen(listener_.get(), SOMAXCONN) != 0) throw SysError("listen for passing memory descriptors", errno);
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) throw SysError("eventfd", errno);
  thread_ = startServiceThread("mscclpp-fd", [this] { serve(); });
}

FdServer::~FdServer() {
  // A forked child has the object but not the thread, and must not stop the parent's.
  if (ownerPid_ != ::getpid()) {
    thread_.detach();
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

std::shared_ptr<FdServer::Offer> FdServer::offer(int fd, std::shared_ptr<const void> owner) {
  const Id128 token = randomId();
  auto offer = std::make_shared<Offer>(shared_from_this(), token);
  std::lock_guard lock(mutex_);
  offered_.emplace(token, Offered{fd, std::move(owner)});
  return offer;
}

void FdServer::withdraw(const Id128& token) noexcept {
  std::shared_ptr<const void> owner;  // released after the lock: its destructor is not ours
  std::lock_guard lock(mutex_);
  const auto found = offered_.find(token);
  if (found == offered_.end()) return;
  owner = std::move(found->second.owner);
  offered_.erase(found);
}

// Returns whether the connection stays open, waiting for the rest of its token.
bool FdServer::answer(Client& client) {
  const ssize_t count = ::recv(client.socket.get(), client.token.data() + client.received,
                               client.token.size() - client.received, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  client.received += static_cast<std::size_t>(count);
  if (count != 0 && client.received < client.token.size()) return true;
  if (client.received == client.token.size()) {
    // Sending cannot block, and under the lock the descriptor cannot be closed meanwhile.
    std::lock_guard lock(mutex_);
    if (const auto found = offered_.find(client.token); found != offered_.end()) {
      sendFd(client.socket.get(), found->second.fd);
    }
  }
  return false;
}

void FdServer::serve() noexcept {
  std::vector<Client> clients;
  std::vector<pollfd> polled;
  clients.reserve(maxClients);
  polled.reserve(maxClients + 2);
  bool outOfDescriptors = false;
  while (true) {
    polled.clear();
    polled.push_back({wake_.get(), POLLIN, 0});
    // A full house listens again when a seat is free; without descriptors to spare it tries again soon.
    const bool accepting = clients.size() < maxClients && !outOfDescriptors;
    polled.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
    for (const Client& client : clients) polled.push_back({client.socket.get(), POLLIN, 0});

    int timeout = outOfDescriptors ? 10 : -1;
    if (!clients.empty() && timeout < 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(clients.front().deadline - Clock::now()).count();
      timeout = static_cast<int>(std::max<std::int64_t>(left, 0));
    }
    ::poll(polled.data(), polled.size(), timeout);
    outOfDescriptors = false;
    if (polled[0].revents != 0) return;

    const auto now = Clock::now();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      bool keep = clients[i].deadline > now;
      if (keep && polled[i + 2].revents != 0) keep = answer(clients[i]);
      if (keep && kept != i) clients[kept] = std::move(clients[i]);
      kept += keep ? 1 : 0;
    }
    clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(kept), clients.end());

    if ((polled[1].revents & POLLIN) != 0) {
      UniqueFd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!accepted) {
        outOfDescriptors = isOutOfDescriptors(errno);
      } else if (isOfThisUser(accepted.get())) {
        clients.emplace_back(std::move(accepted), now);
      }
    }
  }
}

UniqueFd FdServer::fetch(const Key& key, Deadline deadline) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw SysError("socket for a memory descriptor", errno);
  // Calls block for a slice of the time each, so that the deadline is looked at.
  const timeval limit{0, 20'000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));

  const Address address = addressOf(key.server);
  int result;
  while ((result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length)) != 0 &&
         isInterruption(errno)) {
    if (deadline.expired()) failUnanswered(deadline);
  }
  if (result != 0 && errno == ECONNREFUSED) {
    throw Error(
        "the process that registered the memory is gone, no longer has it registered, or runs in another network "
        "namespace; keep the RegisteredMemory alive there, and run the ranks of one host in one network namespace",
        ErrorCode::RemoteError);
  }
  if (result != 0) throw SysError("connect to the process that owns the memory", errno);
  if (!isOfThisUser(socket.get())) {
    throw Error("the process that registered the memory belongs to another user; run all ranks as one user",
                ErrorCode::RemoteError);
  }
  // Sixteen bytes always fit in an empty socket buffer. A server that hung up is noticed by the receive.
  const ssize_t sent = ::send(socket.get(), key.token.data(), key.token.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) throw SysError("send of a memory token", errno);
  return receiveFd(socket.get(), deadline);
}

}  // namespace mscclpp::detail
