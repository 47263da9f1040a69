#include "host/transport/tcp/network.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "host/base/service_thread.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/net/socket.hpp"
#include "host/transport/tcp/memory_info.hpp"
#include "host/transport/tcp/tcp_connection.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail::tcp {

using namespace std::chrono_literals;

namespace {

// A peer responds in milliseconds.
constexpr std::chrono::milliseconds handshakeTimeout = 5s;
// Maximum number of unauthenticated connections; one more closes the oldest. A peer that is affected tries again.
constexpr std::size_t maxPending = 256;
constexpr std::chrono::microseconds receiverPollTime{50};
// Maximum accepts in a row, so that established connections are served however many clients connect.
constexpr int maxAcceptsPerWakeup = 16;

EndpointInfo read(const std::vector<char>& bytes) {
  EndpointInfo info;
  if (bytes.size() == sizeof(info)) {
    std::memcpy(&info, bytes.data(), sizeof(info));
    if (info.magic == magic && info.version == protocolVersion) return info;
  }
  throw Error("connect: the peer's endpoint was made by another version of mscclpp; use one version on all ranks",
              ErrorCode::InvalidUsage);
}

// Detects the failure of a peer's host: nothing arrives from it then.
void enableKeepalive(const UniqueFd& socket, std::chrono::milliseconds peerTimeout) {
  const int one = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  const auto limit = static_cast<unsigned>(std::min<std::chrono::milliseconds>(peerTimeout, 1h).count());
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
}

}  // namespace

std::vector<char> TcpEndpoint::serializedInfo() const {
  const auto bytes = bytesOf(info_);
  return {bytes.begin(), bytes.end()};
}

std::shared_ptr<ConnectionBase> TcpEndpoint::connect(std::shared_ptr<Context> context, const Endpoint& local,
                                                     const Endpoint& remote, const std::vector<char>& peerInfo,
                                                     Deadline deadline) {
  const EndpointInfo peer = read(peerInfo);
  network_->setExpectedInitiator(info_.id, peer.id);
  UniqueFd socket = connectToEndpoint(peer, info_.id, deadline);
  const auto peerTimeout = env()->bootstrapTimeout;
  enableKeepalive(socket, peerTimeout);
  return std::make_shared<TcpConnection>(std::move(context), local, remote, std::move(socket), peer.network,
                                         peerTimeout);
}

TcpNetwork::TcpNetwork()
    : queue_(bindTo(chooseLocalAddress(env()->socketIfname, env()->socketFamily)), "endpoints of the TCP transport",
             AcceptQueue::Reserve::OneDescriptor) {
  startListening(queue_.listener());
  address_ = localAddressOf(queue_.listener());
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) throw SysError("epoll_create1 of the TCP transport", errno);
  wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup_) throw SysError("eventfd of the TCP transport", errno);
  updateEpoll(queue_.listener().get(), EPOLLIN, EPOLL_CTL_ADD);
  updateEpoll(wakeup_.get(), EPOLLIN, EPOLL_CTL_ADD);
  thread_ = startServiceThread(
      "mscclpp-tcp", [this] { run(); }, [this](const std::exception_ptr& failure) { fail(failure); });
}

TcpNetwork::~TcpNetwork() {
  if (!owner_.isCurrent()) {
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  // Otherwise peers would connect to a forked child's copy of the listener, and wait for a reply.
  queue_.close();
}

void TcpNetwork::requireThread() {
  std::lock_guard lock(mutex_);
  if (!failure_) return;
  throw Error(
      "TCP transport: nothing can be received any more, since an internal error has ended the thread of this "
      "context: " +
          messageOf(failure_),
      ErrorCode::SystemError);
}

ExportedMemory TcpNetwork::exportMemory(void* data, std::size_t size) {
  struct Owner {
    std::shared_ptr<TcpNetwork> network;
    Id128 name;
    // In a forked child the threads that use the memory do not exist: there is nothing to wait for.
    ~Owner() {
      if (network->owner_.isCurrent()) network->registry_.remove(name);
    }
  };
  requireThread();
  const int gpu = gpuOf(data);
  const Id128 name = registry_.add(std::make_shared<Registration>(data, size, gpu));
  return {MemoryInfo::handle(name, size, gpu, id_), std::shared_ptr<Owner>(new Owner{shared_from_this(), name})};
}

std::shared_ptr<TcpEndpoint> TcpNetwork::createEndpoint(const EndpointConfig& config) {
  requireThread();
  const EndpointInfo info{magic, protocolVersion, 0, address_, id_, randomId(), makeSecret()};
  EndpointState endpoint{deriveKey(info.secret), std::nullopt, false, -1, nullptr};
  if (config.device.type == DeviceType::GPU) endpoint.copies = makeStagingCopier(config.device.id);
  {
    std::lock_guard lock(mutex_);
    endpoints_.emplace(info.id, std::move(endpoint));
  }
  return std::make_shared<TcpEndpoint>(shared_from_this(), info);
}

void TcpNetwork::removeEndpoint(const Id128& id) noexcept {
  {
    std::lock_guard lock(mutex_);
    const auto found = endpoints_.find(id);
    if (found == endpoints_.end()) return;
    if (found->second.socket >= 0) removed_.push_back(found->second.socket);
    endpoints_.erase(found);
  }
  wake();
}

void TcpNetwork::setExpectedInitiator(const Id128& id, const Id128& initiator) {
  std::lock_guard lock(mutex_);
  auto& expected = endpoints_.at(id).initiator;
  if (!expected) expected = initiator;
  if (*expected != initiator) {
    throw Error("connect: the local endpoint has a connection to another peer; make an endpoint for each connection",
                ErrorCode::InvalidUsage);
  }
}

void TcpNetwork::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof(one));
}

// --- the thread --------------------------------------------------------------------------------------------------

void TcpNetwork::run() {
  while (true) {
    processEvents(timeout());
    dropExpired();
    closeRemoved();
    std::lock_guard lock(mutex_);
    if (stopping_) break;
  }
  closeAll();
}

// Called by the thread as its last action. Without it nothing is received: the peers' connections to this process fail,
// and so does what needs the thread here.
void TcpNetwork::fail(std::exception_ptr failure) noexcept {
  {
    std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  queue_.close();
  closeAll();
}

void TcpNetwork::closeAll() noexcept {
  while (!peers_.empty()) closePeer(peers_.begin());
  while (!pending_.empty()) closePending(pending_.begin());
}

int TcpNetwork::timeout() const {
  int result = pending_.empty() ? -1 : pending_.front().deadline().pollTimeout();
  const auto atMost = [&result](int limit) {
    if (limit >= 0) result = result < 0 ? limit : std::min(result, limit);
  };
  atMost(queue_.pollTimeout(-1));
  for (const auto& [socket, peer] : peers_) atMost(peer.receiver->pollTimeout());
  return result;
}

void TcpNetwork::processEvents(int timeout) {
  std::array<epoll_event, 64> events;
  // A peer that has just sent will probably send again soon, and an idle core takes long to wake up.
  const bool isBusyPolling = Clock::now() < busyPollUntil_;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), isBusyPolling ? 0 : timeout);
  if (count > 0) {
    busyPollUntil_ = Clock::now() + receiverPollTime;
  } else if (isBusyPolling) {
    std::this_thread::yield();
  }
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<std::size_t>(i)].data.fd;
    if (socket == wakeup_.get()) {
      std::uint64_t ignored;
      [[maybe_unused]] const ssize_t size = ::read(wakeup_.get(), &ignored, sizeof(ignored));
    } else if (socket == queue_.listener().get()) {
      acceptConnections();
    } else if (peers_.contains(socket)) {
      serve(socket);
    } else {
      const auto peer = std::find_if(pending_.begin(), pending_.end(),
                                     [socket](const PendingPeer& each) { return each.socket().get() == socket; });
      if (peer != pending_.end()) continueHandshake(peer);
    }
  }
  if (watchesQueue_ == queue_.isPaused()) {
    watchesQueue_ = !watchesQueue_;
    updateEpoll(queue_.listener().get(), watchesQueue_ ? EPOLLIN : 0U, EPOLL_CTL_MOD);
  }
  // Receivers with outstanding work, such as copies in flight.
  std::vector<int> due;
  for (const auto& [socket, peer] : peers_) {
    if (peer.receiver->pollTimeout() >= 0) due.push_back(socket);
  }
  for (int socket : due) serve(socket);
}

void TcpNetwork::acceptConnections() {
  for (int i = 0; i < maxAcceptsPerWakeup; ++i) {
    UniqueFd socket = queue_.accept();
    const int shortage = queue_.shortage();
    if ((shortage == EMFILE || shortage == ENFILE) && !pending_.empty()) {
      // The oldest unauthenticated connection makes room. A peer that is affected tries again.
      closePending(pending_.begin());
      socket = queue_.accept();
    }
    if (!socket) return;
    if (pending_.size() == maxPending) closePending(pending_.begin());
    updateEpoll(socket.get(), EPOLLIN, EPOLL_CTL_ADD);
    pending_.emplace_back(std::move(socket), Deadline::after(handshakeTimeout));
    if (!queue_.hasReserve()) return;
  }
}

void TcpNetwork::continueHandshake(std::list<PendingPeer>::iterator peer) {
  const PendingPeer::State state = peer->receive();
  if (state == PendingPeer::State::Waiting) return;
  if (state == PendingPeer::State::Complete) authenticatePeer(*peer);
  closePending(peer);
}

void TcpNetwork::authenticatePeer(PendingPeer& peer) {
  std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(peer.request().target);
  if (found == endpoints_.end() || !peer.verify(found->second.key)) {
    logMessage(LogLevel::Info, LogSubsystem::Net, "TCP transport: closed a connection from ",
               remoteAddressOf(peer.socket()).toString(), ", which did not prove that it belongs to this job");
    peer.reply(ConnectStatus::Unauthorized, std::nullopt);
    return;
  }
  EndpointState& endpoint = found->second;
  if (endpoint.connected || (endpoint.initiator && *endpoint.initiator != peer.request().initiator)) {
    peer.reply(ConnectStatus::AlreadyConnected, endpoint.key);
    return;
  }
  // A connection keeps its descriptor, so the reserve must remain besides.
  if (!queue_.restoreReserve()) {
    peer.reply(ConnectStatus::OutOfDescriptors, endpoint.key);
    return;
  }
  if (!peer.reply(ConnectStatus::Accepted, endpoint.key)) return;
  UniqueFd socket = peer.takeSocket();
  enableKeepalive(socket, env()->bootstrapTimeout);
  endpoint.initiator = peer.request().initiator;
  endpoint.connected = true;
  endpoint.socket = socket.get();
  const int name = socket.get();
  peers_[name] = {std::make_unique<TcpReceiver>(std::move(socket), registry_, std::move(endpoint.copies)), EPOLLIN};
}

void TcpNetwork::serve(int socket) {
  const auto found = peers_.find(socket);
  if (found == peers_.end()) return;
  auto& [receiver, interest] = found->second;
  if (!receiver->serve()) {
    closePeer(found);
    // Another connection may get the same descriptor number.
    std::lock_guard lock(mutex_);
    for (auto& [id, endpoint] : endpoints_) {
      if (endpoint.socket == socket) endpoint.socket = -1;
    }
    return;
  }
  if (receiver->interest() != interest) {
    interest = receiver->interest();
    updateEpoll(socket, interest, EPOLL_CTL_MOD);
  }
}

void TcpNetwork::updateEpoll(int socket, std::uint32_t events, int operation) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket;
  ::epoll_ctl(epoll_.get(), operation, socket, &event);
}

// A forked child may hold a copy of the socket: then closing it neither ends the connection nor removes it from the
// epoll set, which would report it forever.
void TcpNetwork::disconnect(const UniqueFd& socket) noexcept {
  if (!socket) return;
  updateEpoll(socket.get(), 0, EPOLL_CTL_DEL);
  ::shutdown(socket.get(), SHUT_RDWR);
}

void TcpNetwork::closePeer(PeerMap::iterator peer) noexcept {
  disconnect(peer->second.receiver->socket());
  peers_.erase(peer);
}

void TcpNetwork::closePending(std::list<PendingPeer>::iterator peer) noexcept {
  disconnect(peer->socket());
  pending_.erase(peer);
}

void TcpNetwork::dropExpired() {
  while (!pending_.empty() && pending_.front().deadline().expired()) closePending(pending_.begin());
  // Used for a connection that has ended since, or not replaced yet.
  queue_.restoreReserve();
}

void TcpNetwork::closeRemoved() {
  std::vector<int> removed;
  {
    std::lock_guard lock(mutex_);
    removed.swap(removed_);
  }
  for (int socket : removed) {
    if (const auto peer = peers_.find(socket); peer != peers_.end()) closePeer(peer);
  }
}

}  // namespace mscclpp::detail::tcp
