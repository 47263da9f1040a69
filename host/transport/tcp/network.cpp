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
constexpr std::chrono::milliseconds visitorPatience = 5s;
// So many may knock at once; one more pushes the oldest out. A peer that this hits tries again.
constexpr std::size_t maxVisitors = 256;
constexpr std::chrono::microseconds closeWatch{50};
// Accepted in a row, so that connections are served however many knock.
constexpr int admittedAtOnce = 16;

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
  ~LocalEndpoint() override { network_->removeSeat(details_.id); }

  std::vector<char> details() const override {
    const auto bytes = bytesOf(details_);
    return {bytes.begin(), bytes.end()};
  }
  const Id128& id() const noexcept { return details_.id; }
  /// Only he may connect to this endpoint.
  void expect(const Id128& caller) { network_->bindSeat(details_.id, caller); }

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
  Seat seat{keyOf(details.secret), std::nullopt, false, -1, nullptr};
  if (config.device.type == DeviceType::GPU) seat.copies = makeStagedCopies(config.device.id);
  {
    std::lock_guard lock(mutex_);
    seats_.emplace(details.id, std::move(seat));
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

void TcpNetwork::removeSeat(const Id128& id) noexcept {
  {
    std::lock_guard lock(mutex_);
    const auto found = seats_.find(id);
    if (found == seats_.end()) return;
    if (found->second.socket >= 0) removed_.push_back(found->second.socket);
    seats_.erase(found);
  }
  wake();
}

void TcpNetwork::bindSeat(const Id128& id, const Id128& caller) {
  std::lock_guard lock(mutex_);
  auto& expected = seats_.at(id).caller;
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
    dismissExpired();
    closeRemoved();
    std::lock_guard lock(mutex_);
    if (stopping_) break;
  }
  guests_.clear();
  visitors_.clear();
}

int TcpNetwork::timeout() const {
  int result = visitors_.empty() ? -1 : visitors_.front().deadline().pollTimeout();
  const auto atMost = [&result](int limit) {
    if (limit >= 0) result = result < 0 ? limit : std::min(result, limit);
  };
  if (admitAgain_) atMost(admitAgain_->pollTimeout());
  for (const auto& [socket, guest] : guests_) atMost(guest.inbound->impatience());
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
      admit();
    } else if (guests_.contains(socket)) {
      serve(socket);
    } else {
      const auto visitor = std::find_if(visitors_.begin(), visitors_.end(),
                                        [socket](const Visitor& each) { return each.socket().get() == socket; });
      if (visitor != visitors_.end()) listenTo(visitor);
    }
  }
  if (admitAgain_ && admitAgain_->expired()) {
    admitAgain_.reset();
    watch(listener_.get(), EPOLLIN, EPOLL_CTL_MOD);
  }
  // Those with work of their own, such as copies under way.
  std::vector<int> impatient;
  for (const auto& [socket, guest] : guests_) {
    if (guest.inbound->impatience() >= 0) impatient.push_back(socket);
  }
  for (int socket : impatient) serve(socket);
}

void TcpNetwork::admit() {
  for (int i = 0; i < admittedAtOnce; ++i) {
    UniqueFd socket = acceptFrom(listener_);
    if (!socket) {
      // Out of descriptors: the oldest visitor makes room, or somebody else does in a while.
      if (isOutOfDescriptors(errno)) {
        if (!visitors_.empty()) visitors_.pop_front();
        watch(listener_.get(), 0, EPOLL_CTL_MOD);
        admitAgain_ = Deadline::after(10ms);
      }
      return;
    }
    if (visitors_.size() == maxVisitors) visitors_.pop_front();
    watch(socket.get(), EPOLLIN, EPOLL_CTL_ADD);
    visitors_.emplace_back(std::move(socket), Deadline::after(visitorPatience));
  }
}

void TcpNetwork::listenTo(std::list<Visitor>::iterator visitor) {
  const Visitor::State state = visitor->listen();
  if (state == Visitor::State::Waiting) return;
  if (state == Visitor::State::Complete) seat(*visitor);
  visitors_.erase(visitor);
}

void TcpNetwork::seat(Visitor& visitor) {
  std::lock_guard lock(mutex_);
  const auto found = seats_.find(visitor.hello().callee);
  if (found == seats_.end() || !visitor.hasProven(found->second.key)) {
    logMessage(LogLevel::Info, LogSubsystem::Net, "TCP transport: dropped a connection from ",
               remoteAddressOf(visitor.socket()).toString(), ", which did not prove that it belongs to this job");
    visitor.dismiss(Verdict::Refused, std::nullopt);
    return;
  }
  Seat& seat = found->second;
  if (seat.taken || (seat.caller && *seat.caller != visitor.hello().caller)) {
    visitor.dismiss(Verdict::Taken, seat.key);
    return;
  }
  auto socket = visitor.dismiss(Verdict::Accepted, seat.key);
  if (!socket) return;
  noticeSilence(*socket, env()->bootstrapTimeout);
  seat.caller = visitor.hello().caller;
  seat.taken = true;
  seat.socket = socket->get();
  const int name = socket->get();
  guests_[name] = {std::make_unique<Inbound>(std::move(*socket), registry_, std::move(seat.copies)), EPOLLIN};
}

void TcpNetwork::serve(int socket) {
  const auto found = guests_.find(socket);
  if (found == guests_.end()) return;
  auto& [inbound, interest] = found->second;
  if (!inbound->serve()) {
    guests_.erase(found);
    // The number may come again, for another connection.
    std::lock_guard lock(mutex_);
    for (auto& [id, seat] : seats_) {
      if (seat.socket == socket) seat.socket = -1;
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

void TcpNetwork::dismissExpired() {
  while (!visitors_.empty() && visitors_.front().deadline().expired()) visitors_.pop_front();
}

void TcpNetwork::closeRemoved() {
  std::vector<int> removed;
  {
    std::lock_guard lock(mutex_);
    removed.swap(removed_);
  }
  for (int socket : removed) guests_.erase(socket);
}

}  // namespace tcp

std::shared_ptr<Network> openTcp() {
  return std::make_shared<tcp::TcpNetwork>();
}

}  // namespace mscclpp::detail
