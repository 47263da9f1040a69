#include "network.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "../../gpu_backend.hpp"
#include "../../service_thread.hpp"
#include "../../socket.hpp"
#include "memory_name.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"
#include "outbound.hpp"

namespace mscclpp::detail {

namespace tcp {

using namespace std::chrono_literals;

namespace {

// A peer answers in milliseconds; whoever takes longer than this is none.
constexpr std::chrono::milliseconds handshakePatience = 5s;
// So many may be about to prove who they are; one more pushes the oldest out. A peer that this hits tries again.
constexpr std::size_t maxPending = 256;
constexpr std::chrono::microseconds closeWatch{50};
// Accepted in a row, so that connections are served however many dial.
constexpr int acceptedAtOnce = 16;

EndpointDetails read(const std::vector<char>& bytes) {
  EndpointDetails details;
  if (bytes.size() == sizeof(details)) {
    std::memcpy(&details, bytes.data(), sizeof(details));
    if (details.magic == magic && details.version == protocolVersion) return details;
  }
  throw Error("connect: the peer's endpoint was made by another version of mscclpp; use one version on all ranks",
              ErrorCode::InvalidUsage);
}

// So that the end of a peer's host is noticed: nobody says a word for it.
void noticeSilence(const UniqueFd& socket, std::chrono::milliseconds patience) {
  const int one = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  const auto limit = static_cast<unsigned>(std::min<std::chrono::milliseconds>(patience, 1h).count());
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
}

}  // namespace

class TcpNetwork::LocalEndpoint : public NetworkEndpoint {
 public:
  LocalEndpoint(std::shared_ptr<TcpNetwork> network, const EndpointDetails& details)
      : network_(std::move(network)), details_(details) {}
  ~LocalEndpoint() override { network_->removeSlot(details_.id); }

  std::vector<char> details() const override {
    const auto bytes = bytesOf(details_);
    return {bytes.begin(), bytes.end()};
  }
  const Id128& id() const noexcept { return details_.id; }
  /// Only he may connect to this endpoint.
  void expect(const Id128& caller) { network_->bindSlot(details_.id, caller); }

 private:
  std::shared_ptr<TcpNetwork> network_;
  EndpointDetails details_;
};

TcpNetwork::TcpNetwork() : owner_(::getpid()) {
  listener_ = bindTo(chooseLocalAddress(env()->socketIfname, env()->socketFamily));
  startListening(listener_);
  address_ = localAddressOf(listener_);
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) throw SysError("epoll_create1", errno);
  wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup_) throw SysError("eventfd", errno);
  watch(listener_.get(), EPOLLIN, EPOLL_CTL_ADD);
  watch(wakeup_.get(), EPOLLIN, EPOLL_CTL_ADD);
  thread_ = startServiceThread("mscclpp-tcp", [this] { run(); });
}

TcpNetwork::~TcpNetwork() {
  // A forked child has the object but not the thread, and must not stop the parent's.
  if (owner_ != ::getpid()) {
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

SharedPiece TcpNetwork::share(void* data, std::size_t size) {
  struct Offer {
    std::shared_ptr<TcpNetwork> network;
    Id128 name;
    ~Offer() { network->registry_.remove(name); }
  };
  const int gpu = gpuOf(data);
  const Id128 name = registry_.add(std::make_shared<Registration>(data, size, gpu));
  return {{MemoryName::handle(name, size, gpu, id_)}, std::shared_ptr<Offer>(new Offer{shared_from_this(), name})};
}

std::shared_ptr<NetworkEndpoint> TcpNetwork::createEndpoint(const EndpointConfig& config) {
  const EndpointDetails details{magic, protocolVersion, 0, address_, id_, randomId(), makeSecret()};
  EndpointSlot slot{keyOf(details.secret), std::nullopt, false, -1, nullptr};
  if (config.device.type == DeviceType::GPU) slot.copies = makeStagedCopies(config.device.id);
  {
    std::lock_guard lock(mutex_);
    slots_.emplace(details.id, std::move(slot));
  }
  return std::make_shared<LocalEndpoint>(shared_from_this(), details);
}

std::shared_ptr<ConnectionBase> TcpNetwork::connect(std::shared_ptr<Context> context, const Endpoint& local,
                                                    const Endpoint& remote, Deadline deadline) {
  const auto self = std::dynamic_pointer_cast<LocalEndpoint>(resourcesOf(local));
  if (!self) throw Error("connect: the local endpoint is of another transport", ErrorCode::InternalError);
  const EndpointDetails peer = read(detailsOf(remote));
  self->expect(peer.id);
  UniqueFd socket = dial(peer, self->id(), deadline);
  const auto patience = env()->bootstrapTimeout;
  noticeSilence(socket, patience);
  return std::make_shared<Outbound>(std::move(context), local, remote, std::move(socket), peer.network, patience);
}

void TcpNetwork::removeSlot(const Id128& id) noexcept {
  {
    std::lock_guard lock(mutex_);
    const auto found = slots_.find(id);
    if (found == slots_.end()) return;
    if (found->second.socket >= 0) removed_.push_back(found->second.socket);
    slots_.erase(found);
  }
  wake();
}

void TcpNetwork::bindSlot(const Id128& id, const Id128& caller) {
  std::lock_guard lock(mutex_);
  auto& expected = slots_.at(id).caller;
  if (!expected) expected = caller;
  if (*expected != caller) {
    throw Error("connect: the local endpoint has a connection to another peer; make an endpoint for each connection",
                ErrorCode::InvalidUsage);
  }
}

void TcpNetwork::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof(one));
}

// --- the thread --------------------------------------------------------------------------------------------------

void TcpNetwork::run() noexcept {
  while (true) {
    serveReady(timeout());
    dropExpired();
    closeRemoved();
    std::lock_guard lock(mutex_);
    if (stopping_) break;
  }
  peers_.clear();
  pending_.clear();
}

int TcpNetwork::timeout() const {
  int result = pending_.empty() ? -1 : pending_.front().deadline().pollTimeout();
  const auto atMost = [&result](int limit) {
    if (limit >= 0) result = result < 0 ? limit : std::min(result, limit);
  };
  if (acceptAgain_) atMost(acceptAgain_->pollTimeout());
  for (const auto& [socket, peer] : peers_) atMost(peer.inbound->impatience());
  return result;
}

void TcpNetwork::serveReady(int timeout) {
  std::array<epoll_event, 64> events;
  // Who has just been heard will soon speak again, and a core that goes idle takes long to wake.
  const bool isAwake = Clock::now() < awakeUntil_;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), isAwake ? 0 : timeout);
  if (count > 0) {
    awakeUntil_ = Clock::now() + closeWatch;
  } else if (isAwake) {
    std::this_thread::yield();
  }
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<std::size_t>(i)].data.fd;
    if (socket == wakeup_.get()) {
      std::uint64_t ignored;
      [[maybe_unused]] const ssize_t size = ::read(wakeup_.get(), &ignored, sizeof(ignored));
    } else if (socket == listener_.get()) {
      acceptConnections();
    } else if (peers_.contains(socket)) {
      serve(socket);
    } else {
      const auto peer = std::find_if(pending_.begin(), pending_.end(),
                                     [socket](const PendingPeer& each) { return each.socket().get() == socket; });
      if (peer != pending_.end()) advance(peer);
    }
  }
  if (acceptAgain_ && acceptAgain_->expired()) {
    acceptAgain_.reset();
    watch(listener_.get(), EPOLLIN, EPOLL_CTL_MOD);
  }
  // Those with work of their own, such as copies under way.
  std::vector<int> impatient;
  for (const auto& [socket, peer] : peers_) {
    if (peer.inbound->impatience() >= 0) impatient.push_back(socket);
  }
  for (int socket : impatient) serve(socket);
}

void TcpNetwork::acceptConnections() {
  for (int i = 0; i < acceptedAtOnce; ++i) {
    UniqueFd socket = acceptFrom(listener_);
    if (!socket) {
      // Out of descriptors: the oldest that has not proved itself makes room, or somebody else does in a while.
      if (isOutOfDescriptors(errno)) {
        if (!pending_.empty()) pending_.pop_front();
        watch(listener_.get(), 0, EPOLL_CTL_MOD);
        acceptAgain_ = Deadline::after(10ms);
      }
      return;
    }
    if (pending_.size() == maxPending) pending_.pop_front();
    watch(socket.get(), EPOLLIN, EPOLL_CTL_ADD);
    pending_.emplace_back(std::move(socket), Deadline::after(handshakePatience));
  }
}

void TcpNetwork::advance(std::list<PendingPeer>::iterator peer) {
  const PendingPeer::State state = peer->receive();
  if (state == PendingPeer::State::Waiting) return;
  if (state == PendingPeer::State::Complete) assignSlot(*peer);
  pending_.erase(peer);
}

void TcpNetwork::assignSlot(PendingPeer& peer) {
  std::lock_guard lock(mutex_);
  const auto found = slots_.find(peer.hello().callee);
  if (found == slots_.end() || !peer.hasProven(found->second.key)) {
    logMessage(LogLevel::Info, LogSubsystem::Net, "TCP transport: dropped a connection from ",
               remoteAddressOf(peer.socket()).toString(), ", which did not prove that it belongs to this job");
    peer.answer(Verdict::Refused, std::nullopt);
    return;
  }
  EndpointSlot& slot = found->second;
  if (slot.taken || (slot.caller && *slot.caller != peer.hello().caller)) {
    peer.answer(Verdict::Taken, slot.key);
    return;
  }
  auto socket = peer.answer(Verdict::Accepted, slot.key);
  if (!socket) return;
  noticeSilence(*socket, env()->bootstrapTimeout);
  slot.caller = peer.hello().caller;
  slot.taken = true;
  slot.socket = socket->get();
  const int name = socket->get();
  peers_[name] = {std::make_unique<Inbound>(std::move(*socket), registry_, std::move(slot.copies)), EPOLLIN};
}

void TcpNetwork::serve(int socket) {
  const auto found = peers_.find(socket);
  if (found == peers_.end()) return;
  auto& [inbound, interest] = found->second;
  if (!inbound->serve()) {
    peers_.erase(found);
    // The number may come again, for another connection.
    std::lock_guard lock(mutex_);
    for (auto& [id, slot] : slots_) {
      if (slot.socket == socket) slot.socket = -1;
    }
    return;
  }
  if (inbound->interest() != interest) {
    interest = inbound->interest();
    watch(socket, interest, EPOLL_CTL_MOD);
  }
}

void TcpNetwork::watch(int socket, std::uint32_t events, int operation) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket;
  ::epoll_ctl(epoll_.get(), operation, socket, &event);
}

void TcpNetwork::dropExpired() {
  while (!pending_.empty() && pending_.front().deadline().expired()) pending_.pop_front();
}

void TcpNetwork::closeRemoved() {
  std::vector<int> removed;
  {
    std::lock_guard lock(mutex_);
    removed.swap(removed_);
  }
  for (int socket : removed) peers_.erase(socket);
}

}  // namespace tcp

std::shared_ptr<Network> openTcp() {
  return std::make_shared<tcp::TcpNetwork>();
}

}  // namespace mscclpp::detail
