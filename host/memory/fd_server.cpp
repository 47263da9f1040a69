#include "host/memory/fd_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "host/base/descriptor_error.hpp"
#include "host/base/service_thread.hpp"
#include "host/net/local_socket.hpp"
#include "host/net/retry.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

// A peer sends its token at once.
constexpr auto clientTimeout = std::chrono::seconds(5);
// Maximum number of clients that have not sent their token; one more disconnects the oldest.
constexpr std::size_t maxClients = 64;
constexpr int maxAcceptsPerTurn = 64;

/// The one-byte reply. If the connection is closed without one, there is no such descriptor.
enum class Reply : char {
  Found = 1,  ///< the descriptor is attached
  Busy = 2,   ///< the client may retry
};

std::string socketName(const Id128& name) {
  return "mscclpp-fd-" + hexText(name);
}

// Never blocks.
void sendReply(int socket, Reply reply, int fd = -1) noexcept {
  iovec data{&reply, sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  [[maybe_unused]] const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

[[noreturn]] void throwTimeout(const Deadline& deadline) {
  throw Error("the process that owns the memory has not answered for " + deadline.elapsedText() +
                  "; it is stopped, or has ended",
              ErrorCode::Timeout);
}

// Receives one byte and one descriptor; empty if the server is busy. Every descriptor that arrives gets an owner before
// anything can throw.
std::optional<UniqueFd> receiveFd(const UniqueFd& socket, Deadline deadline) {
  Reply reply{};
  iovec data{&reply, sizeof(reply)};
  constexpr std::size_t room = 4;
  alignas(cmsghdr) char control[CMSG_SPACE(room * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t count;
  while ((count = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC)) < 0 && (wouldBlock(errno) || errno == EINTR)) {
    if (!waitReadable(socket, deadline)) throwTimeout(deadline);
  }
  if (count < 0 && errno != ECONNRESET) throw SysError("recvmsg of a memory descriptor", errno);
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
  if (count > 0 && reply == Reply::Busy) return std::nullopt;
  // The kernel drops descriptors when this process has no free descriptor numbers.
  if (count > 0 && received.empty() && (message.msg_flags & MSG_CTRUNC) != 0) {
    throw SysError("recvmsg of a memory descriptor", EMFILE);
  }
  if (count <= 0 || received.size() != 1) {
    throw Error("the process that registered the memory no longer offers it; keep the RegisteredMemory alive there",
                ErrorCode::RemoteError);
  }
  return std::move(received.front());
}

// Empty if the server is busy.
std::optional<UniqueFd> requestFd(const FdServer::Key& key, Deadline deadline) {
  int errorNumber = 0;
  const UniqueFd socket = connectLocal(socketName(key.server), deadline, errorNumber);
  if (!socket && isOutOfDescriptors(errorNumber))
    throw SysError("socket for fetching a memory descriptor", errorNumber);
  if (!socket && errorNumber == EAGAIN) throwTimeout(deadline);
  if (!socket && errorNumber == ECONNREFUSED) {
    throw Error(
        "the process that registered the memory is gone, no longer has it registered, or runs in another network "
        "namespace; keep the RegisteredMemory alive there, and run the ranks of one host in one network namespace",
        ErrorCode::RemoteError);
  }
  if (!socket) throw SysError("connect to the process that owns the memory", errorNumber);
  if (!isSameUser(socket)) {
    throw Error("the process that registered the memory belongs to another user; run all ranks as one user",
                ErrorCode::RemoteError);
  }
  // Sixteen bytes always fit in an empty socket buffer. The receive detects a server that closed the connection.
  const ssize_t sent = ::send(socket.get(), key.token.data(), key.token.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) throw SysError("send of a memory token", errno);
  return receiveFd(socket, deadline);
}

}  // namespace

std::shared_ptr<FdServer> FdServer::create() {
  return std::shared_ptr<FdServer>(new FdServer());
}

std::shared_ptr<FdServer> FdServer::ofProcess() {
  struct Current {
    std::mutex mutex;
    std::weak_ptr<FdServer> server;
  };
  static auto* const current = new Current;  // never destroyed: static objects may register memory
  const std::lock_guard lock(current->mutex);
  auto server = current->server.lock();
  if (!server || !server->isRunning()) current->server = server = create();
  return server;
}

FdServer::FdServer()
    : name_(randomId()),
      queue_(listenLocal(socketName(name_)), "peers that map memory", AcceptQueue::Reserve::OneDescriptor) {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) throw SysError("eventfd for passing memory descriptors", errno);
  thread_ = startServiceThread(
      "mscclpp-fd", [this] { serve(); }, [this](const std::exception_ptr& failure) { fail(failure); });
}

FdServer::~FdServer() {
  if (!owner_.isCurrent()) {
    thread_.detach();
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  thread_.join();
  // Otherwise peers would connect to a forked child's copy of the listener, and wait for a reply.
  queue_.close();
}

bool FdServer::isRunning() {
  if (!owner_.isCurrent()) return false;  // the lock may have been held at the fork
  const std::lock_guard lock(mutex_);
  return !failure_;
}

std::shared_ptr<FdServer::Registration> FdServer::registerFd(int fd, std::shared_ptr<const void> owner) {
  const Id128 token = randomId();
  auto registration = std::make_shared<Registration>(shared_from_this(), token);
  std::lock_guard lock(mutex_);
  if (failure_) {
    throw Error(
        "peers cannot map memory of this process any more: an internal error has ended the thread that passes "
        "it to them: " +
            messageOf(failure_),
        ErrorCode::SystemError);
  }
  entries_.emplace(token, Entry{fd, std::move(owner)});
  return registration;
}

void FdServer::deregister(const Id128& token) noexcept {
  if (!owner_.isCurrent()) return;    // the lock may have been held at the fork
  std::shared_ptr<const void> owner;  // released after the lock: its destructor is the caller's code
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end()) return;
  owner = std::move(found->second.owner);
  entries_.erase(found);
}

// Returns whether the connection stays open because its token is incomplete.
bool FdServer::handleClient(Client& client) {
  const ssize_t count = ::recv(client.socket.get(), client.token.data() + client.received,
                               client.token.size() - client.received, MSG_DONTWAIT);
  if (count < 0) return wouldBlock(errno) || errno == EINTR;
  client.received += static_cast<std::size_t>(count);
  if (count != 0 && client.received < client.token.size()) return true;
  if (client.received == client.token.size()) {
    // The send cannot block, and under the lock the descriptor cannot be closed meanwhile.
    std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(client.token); found != entries_.end()) {
      sendReply(client.socket.get(), Reply::Found, found->second.fd);
    }
  }
  ::shutdown(client.socket.get(), SHUT_RDWR);  // a forked child may hold a copy
  return false;
}

// Disconnects a client that has not sent its token. One that is merely slow connects again.
void FdServer::disconnect(Client& client) noexcept {
  sendReply(client.socket.get(), Reply::Busy);
  ::shutdown(client.socket.get(), SHUT_RDWR);
}

void FdServer::acceptClients() {
  for (int i = 0; i < maxAcceptsPerTurn; ++i) {
    UniqueFd socket = queue_.accept();
    if (!socket) return;
    if (!isSameUser(socket)) continue;
    if (clients_.size() == maxClients || (!queue_.hasReserve() && !clients_.empty())) {
      disconnect(clients_.front());
      clients_.pop_front();
    }
    // Usually the token has arrived already.
    Client client{std::move(socket), Deadline::after(clientTimeout)};
    if (handleClient(client)) clients_.push_back(std::move(client));
    client.socket = UniqueFd();
    if (!queue_.hasReserve()) {
      queue_.restoreReserve();
      return;
    }
  }
}

void FdServer::serve() {
  std::vector<pollfd> polled;
  polled.reserve(maxClients + 2);
  while (true) {
    polled.clear();
    polled.push_back({wake_.get(), POLLIN, 0});
    polled.push_back(queue_.pollEntry());
    for (const Client& client : clients_) polled.push_back({client.socket.get(), POLLIN, 0});
    const int timeout = clients_.empty() ? -1 : clients_.front().deadline.pollTimeout();
    ::poll(polled.data(), polled.size(), queue_.pollTimeout(timeout));
    if (polled[0].revents != 0) break;

    auto entry = polled.begin() + 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++entry) {
      bool stays = true;
      if (entry->revents != 0) {
        stays = handleClient(*client);
      } else if (client->deadline.expired()) {
        disconnect(*client);
        stays = false;
      }
      client = stays ? client + 1 : clients_.erase(client);
    }
    if ((polled[1].revents & POLLIN) != 0) acceptClients();
  }
  for (Client& client : clients_) disconnect(client);
}

// Called by the thread as its last action. Peers that fetch, now or later, are told that the memory is gone.
void FdServer::fail(std::exception_ptr failure) noexcept {
  {
    std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  queue_.close();
  for (Client& client : clients_) ::shutdown(client.socket.get(), SHUT_RDWR);
}

UniqueFd FdServer::fetch(const Key& key, Deadline deadline) {
  auto fd = retryUntil(deadline, std::chrono::milliseconds(20), [&] { return requestFd(key, deadline); });
  if (!fd) throwTimeout(deadline);
  return std::move(*fd);
}

}  // namespace mscclpp::detail
