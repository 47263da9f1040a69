#include "mesh.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"
#include "service_thread.hpp"
#include "socket.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

// A peer is judged by beats of our own that pass without a word from it, never by a clock: a process that was itself
// stopped for a while must not accuse the others.
constexpr int silentBeatsAllowed = 4;
// More than this waits in the caller, not in the outbox. One message of any size is always taken.
constexpr std::size_t outboxLimit = std::size_t{64} << 20;
// Memory for a message grows as its bytes arrive, so that a length alone cannot claim it.
constexpr std::size_t growth = std::size_t{4} << 20;
// Per peer and turn, so that one busy peer does not starve the others.
constexpr std::size_t readBudget = std::size_t{8} << 20;
constexpr std::size_t longestReason = 1024;
constexpr std::chrono::milliseconds farewellPatience = 2s;

// What a waiting message counts as: even an empty one takes room in the mailbox.
std::size_t memoryOf(std::size_t messageBytes) {
  return std::max<std::size_t>(messageBytes, 512);
}

UniqueFd makeWakeup() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) throw SysError("eventfd", errno);
  return fd;
}

}  // namespace

struct Mesh::Header {
  Frame frame;
  std::int32_t tag;
  std::uint64_t size;
};

struct Mesh::Peer {
  int rank = -1;

  // Shared, under the mutex.
  State state = State::Absent;
  std::deque<Bytes> outbox;
  std::size_t outboxBytes = 0;  // including what the thread is writing
  std::size_t inboxBytes = 0;   // of messages that nobody has received
  UniqueFd socket;              // set once; closed by the thread

  // The thread's own.
  Bytes writing;
  std::size_t written = 0;
  bool finishWriting = false;  // half-close once the outbox is empty
  bool writeClosed = false;
  Header header{};
  std::size_t headerBytes = 0;
  Bytes payload;
  std::size_t payloadBytes = 0;
  int silentBeats = 0;
};

Mesh::Mesh(int rank, int numRanks, std::chrono::milliseconds heartbeatTimeout, std::size_t inboxLimit)
    : rank_(rank),
      heartbeatTimeout_(heartbeatTimeout),
      inboxLimit_(inboxLimit),
      owner_(::getpid()),
      wakeup_(makeWakeup()),
      peers_(numRanks) {
  for (int i = 0; i < numRanks; ++i) peers_[i].rank = i;
}

Mesh::~Mesh() {
  if (!thread_.joinable()) return;
  if (::getpid() != owner_) {
    // A forked child has a copy of the memory but not the thread; the connections are its parent's.
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake();
  thread_.join();
}

void Mesh::setHeartbeatTimeout(std::chrono::milliseconds timeout) {
  if (thread_.joinable())
    throw Error("the heartbeat timeout cannot change once the ranks have met", ErrorCode::InvalidUsage);
  heartbeatTimeout_ = timeout;
}

void Mesh::addPeer(int rank, UniqueFd socket) {
  {
    std::lock_guard lock(mutex_);
    peers_[rank].socket = std::move(socket);
    peers_[rank].state = State::Alive;
  }
  if (thread_.joinable()) {
    wake();
    return;
  }
  thread_ = startServiceThread("mscclpp-mesh", [this] { run(); });
}

// --- callers -----------------------------------------------------------------------------------------------------

void Mesh::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t count = ::write(wakeup_.get(), &one, sizeof(one));
}

void Mesh::enqueue(Peer& peer, Frame frame, int tag, const void* data, std::size_t size) {
  const Header header{frame, tag, size};
  Bytes bytes(sizeof(header) + size);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (size > 0) std::memcpy(bytes.data() + sizeof(header), data, size);
  peer.outboxBytes += bytes.size();
  peer.outbox.push_back(std::move(bytes));
}

std::string Mesh::describe(const char* operation, int peer, int tag) const {
  std::string text = "rank " + std::to_string(rank_) + ", " + operation;
  if (peer >= 0) text += " with rank " + std::to_string(peer);
  if (tag >= 0) text += " (tag " + std::to_string(tag) + ")";
  return text + ": ";
}

void Mesh::throwFailure(const std::string& description, std::optional<Deadline::Clock::time_point> start) const {
  const std::string waited = start ? ", after " + secondsText(Deadline::Clock::now() - *start) : "";
  if (aborted_) throw Error(description + "the communication was aborted" + waited, ErrorCode::Aborted);
  throw Error(description + "rank " + std::to_string(failure_->rank) + " failed: " + failure_->reason + waited,
              ErrorCode::RemoteError);
}

template <class Ready>
bool Mesh::waitUntil(std::unique_lock<std::mutex>& lock, Deadline deadline, const Ready& ready) {
  ++blocked_;
  const bool inTime = changed_.wait_until(lock, deadline.when(), ready);
  --blocked_;
  return inTime;
}

void Mesh::send(int peer, int tag, const void* data, std::size_t size, const char* operation, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  std::unique_lock lock(mutex_);
  if (peer == rank_) {
    if (isBroken()) throwFailure(describe(operation, peer, tag), std::nullopt);
    const char* bytes = static_cast<const char*>(data);
    mailbox_[{peer, tag}].emplace_back(bytes, bytes + size);
    changed_.notify_all();
    return;
  }
  Peer& target = peers_[peer];
  const auto ready = [&] {
    return isBroken() || target.state != State::Alive || target.outboxBytes == 0 ||
           target.outboxBytes + size <= outboxLimit;
  };
  const bool inTime = waitUntil(lock, deadline, ready);
  if (isBroken()) throwFailure(describe(operation, peer, tag), start);
  if (target.state != State::Alive) {
    throw Error(describe(operation, peer, tag) + "rank " + std::to_string(peer) + " has left the job already",
                ErrorCode::RemoteError);
  }
  if (!inTime) {
    throw Error(describe(operation, peer, tag) + "it has not taken earlier messages for " +
                    secondsText(Deadline::Clock::now() - start),
                ErrorCode::Timeout);
  }
  enqueue(target, Frame::Message, tag, data, size);
  wake();
}

void Mesh::recv(int peer, int tag, void* data, std::size_t size, const char* operation, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  std::unique_lock lock(mutex_);
  auto box = mailbox_.end();
  const auto ready = [&] {
    box = mailbox_.find({peer, tag});
    return box != mailbox_.end() || isBroken() || (peer != rank_ && peers_[peer].state != State::Alive);
  };
  waitUntil(lock, deadline, ready);
  if (box == mailbox_.end()) {
    // What had arrived before a failure is still delivered; only a call that would have to wait throws.
    if (isBroken()) throwFailure(describe(operation, peer, tag), start);
    if (peer != rank_ && peers_[peer].state != State::Alive) {
      throw Error(describe(operation, peer, tag) + "rank " + std::to_string(peer) +
                      " has left the job without sending this message",
                  ErrorCode::RemoteError);
    }
    throw Error(describe(operation, peer, tag) + "nothing arrived within " +
                    secondsText(Deadline::Clock::now() - start) + "; did that rank make the matching call?",
                ErrorCode::Timeout);
  }
  const Bytes message = std::move(box->second.front());
  box->second.pop_front();
  if (box->second.empty()) mailbox_.erase(box);
  if (peer != rank_) peers_[peer].inboxBytes -= memoryOf(message.size());
  lock.unlock();
  if (message.size() != size) {
    throw Error(describe(operation, peer, tag) + "rank " + std::to_string(peer) + " sent " +
                    std::to_string(message.size()) + " bytes where " + std::to_string(size) + " were expected",
                ErrorCode::InvalidUsage);
  }
  if (size > 0) std::memcpy(data, message.data(), size);
}

void Mesh::check(const char* operation) const {
  std::lock_guard lock(mutex_);
  if (isBroken()) throwFailure(describe(operation, -1, -1), std::nullopt);
}

void Mesh::fail(const std::string& reason) {
  const RankFailure failure{rank_, reason.substr(0, longestReason)};
  {
    std::lock_guard lock(mutex_);
    if (failure_ || announcing_) return;
    announcing_ = true;
    failure_ = failure;
    for (Peer& peer : peers_) {
      if (peer.state != State::Alive || !peer.socket) continue;
      enqueue(peer, Frame::Failure, rank_, failure.reason.data(), failure.reason.size());
    }
  }
  wake();
  changed_.notify_all();
  runCallbacks(failure);
}

void Mesh::abort() noexcept {
  {
    std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  tellAborted();
}

bool Mesh::abortBlocked() noexcept {
  {
    std::lock_guard lock(mutex_);
    if (blocked_ == 0) return false;
    aborted_ = true;
  }
  tellAborted();
  return true;
}

void Mesh::tellAborted() noexcept {
  changed_.notify_all();
  try {
    fail("it was aborted in the middle of a call");
  } catch (const std::exception&) {  // no memory to tell the peers: they learn when this rank leaves
  }
}

std::optional<RankFailure> Mesh::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

Liveness::Subscription Mesh::subscribe(Liveness::FailureCallback callback) {
  std::lock_guard lock(callbackMutex_);
  if (callbacksRan_) {
    callback(*failure());
    return 0;
  }
  callbacks_.emplace(nextSubscription_, std::move(callback));
  return nextSubscription_++;
}

void Mesh::unsubscribe(Liveness::Subscription subscription) noexcept {
  std::lock_guard lock(callbackMutex_);
  callbacks_.erase(subscription);
}

// --- the thread --------------------------------------------------------------------------------------------------

void Mesh::run() noexcept {
  try {
    serve();
  } catch (const std::exception& error) {
    // Out of memory or descriptors: without this thread nothing can arrive any more, so every call must say so.
    logMessage(LogLevel::Error, LogSubsystem::Net, "rank ", rank_, " lost its connections: ", error.what());
    const RankFailure failure{rank_, std::string("its connections broke down: ") + error.what()};
    {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = failure;
      for (Peer& peer : peers_) peer.socket = UniqueFd();
    }
    changed_.notify_all();
    runCallbacks(failure);
  }
}

void Mesh::serve() {
  const bool beating = heartbeatTimeout_ > 0ms;
  const auto interval = std::max(heartbeatTimeout_ / (silentBeatsAllowed + 1), 1ms);
  Deadline nextBeat = Deadline::after(interval);
  Deadline leaveBy = Deadline::after(0ms);
  std::vector<pollfd> entries;
  std::vector<Peer*> owners;
  while (true) {
    entries.assign(1, pollfd{wakeup_.get(), POLLIN, 0});
    owners.assign(1, nullptr);
    bool leaveNow = false;
    {
      std::lock_guard lock(mutex_);
      leaveNow = leaving_ && !left_;
      for (Peer& peer : peers_) {
        if (!peer.socket) continue;
        const bool wantsToWrite = !peer.writing.empty() || !peer.outbox.empty() || peer.finishWriting;
        entries.push_back({peer.socket.get(), static_cast<short>(POLLIN | (wantsToWrite ? POLLOUT : 0)), 0});
        owners.push_back(&peer);
      }
    }
    if (leaveNow) {
      startLeaving();
      left_ = true;
      leaveBy = Deadline::after(farewellPatience);
      continue;
    }
    if (std::exchange(progressed_, false)) leaveBy = Deadline::after(farewellPatience);
    if (left_ && (owners.size() == 1 || leaveBy.expired())) return;

    int timeout = beating ? nextBeat.pollTimeout() : -1;
    if (left_) timeout = leaveBy.pollTimeout(interval);
    if (::poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) throw SysError("poll", errno);
    if ((entries[0].revents & POLLIN) != 0) {
      std::uint64_t count;
      [[maybe_unused]] const ssize_t drained = ::read(wakeup_.get(), &count, sizeof(count));
    }
    for (std::size_t i = 1; i < entries.size(); ++i) {
      Peer& peer = *owners[i];
      if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) readFrom(peer);
      if ((entries[i].revents & POLLOUT) != 0 && peer.socket) writeTo(peer);
    }
    if (beating && nextBeat.expired()) {
      beat();
      nextBeat = Deadline::after(interval);
    }
  }
}

void Mesh::readFrom(Peer& peer) {
  for (std::size_t budget = readBudget; budget > 0 && peer.socket;) {
    char* target;
    std::size_t wanted;
    if (peer.headerBytes < sizeof(Header)) {
      target = reinterpret_cast<char*>(&peer.header) + peer.headerBytes;
      wanted = sizeof(Header) - peer.headerBytes;
    } else {
      if (peer.payloadBytes == peer.payload.size()) {
        peer.payload.resize(std::min<std::size_t>(peer.header.size, peer.payloadBytes + growth));
      }
      target = peer.payload.data() + peer.payloadBytes;
      wanted = peer.payload.size() - peer.payloadBytes;
    }
    const ssize_t count = ::recv(peer.socket.get(), target, wanted, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) {
      const std::string how = count == 0 ? "closed without a farewell" : std::strerror(errno);
      lose(peer, "its process ended or was killed (connection: " + how + ")");
      return;
    }
    const std::size_t received = static_cast<std::size_t>(count);
    budget -= std::min(budget, received);
    peer.silentBeats = 0;
    if (peer.headerBytes < sizeof(Header)) {
      peer.headerBytes += received;
      if (peer.headerBytes < sizeof(Header)) continue;
      const std::uint64_t limit = peer.header.frame == Frame::Message ? INT_MAX : longestReason;
      if (peer.header.frame < Frame::Message || peer.header.frame > Frame::Failure || peer.header.size > limit) {
        lose(peer, "it sent bytes that are no message");
        return;
      }
      if (peer.header.frame == Frame::Message && !hasRoomFor(peer)) {
        lose(peer, "it sent more than " + std::to_string(inboxLimit_) + " bytes that nobody here has received");
        return;
      }
    } else {
      peer.payloadBytes += received;
    }
    if (peer.payloadBytes == peer.header.size) {
      if (!handle(peer)) return;
      peer.headerBytes = 0;
      peer.payload = Bytes();
      peer.payloadBytes = 0;
    }
  }
}

bool Mesh::hasRoomFor(const Peer& peer) const {
  std::lock_guard lock(mutex_);
  return peer.inboxBytes + memoryOf(peer.header.size) <= inboxLimit_;
}

// A whole frame has arrived. Returns false if there is nothing more to read from this peer.
bool Mesh::handle(Peer& peer) {
  switch (peer.header.frame) {
    case Frame::Message: {
      std::lock_guard lock(mutex_);
      if (leaving_) break;
      peer.inboxBytes += memoryOf(peer.payload.size());
      mailbox_[{peer.rank, peer.header.tag}].push_back(std::move(peer.payload));
      break;
    }
    case Frame::Heartbeat:
      return true;
    case Frame::Farewell: {
      std::lock_guard lock(mutex_);
      peer.state = State::Departed;
      peer.outbox.clear();
      peer.writing.clear();
      peer.outboxBytes = 0;
      // The peer waits for this before it closes, so that nothing of what it sent is lost to a reset.
      ::shutdown(peer.socket.get(), SHUT_WR);
      peer.writeClosed = true;
      peer.finishWriting = false;
      break;
    }
    case Frame::Failure: {
      const int failed = peer.header.tag;
      if (failed < 0 || failed >= static_cast<int>(peers_.size())) {
        lose(peer, "it reported the failure of a rank that does not exist");
        return false;
      }
      announce({failed, std::string(peer.payload.begin(), peer.payload.end())});
      return true;
    }
  }
  changed_.notify_all();
  return true;
}

void Mesh::writeTo(Peer& peer) {
  if (peer.writeClosed) return;
  while (true) {
    if (peer.writing.empty()) {
      std::lock_guard lock(mutex_);
      if (peer.outbox.empty()) break;
      peer.writing = std::move(peer.outbox.front());
      peer.outbox.pop_front();
      peer.written = 0;
    }
    const ssize_t count =
        ::send(peer.socket.get(), peer.writing.data() + peer.written, peer.writing.size() - peer.written, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    // A broken connection is for readFrom to judge: a farewell may still be waiting there.
    if (count < 0) return;
    peer.written += static_cast<std::size_t>(count);
    progressed_ = true;
    if (peer.written == peer.writing.size()) {
      std::lock_guard lock(mutex_);
      peer.outboxBytes -= peer.writing.size();
      peer.writing.clear();
      changed_.notify_all();
    }
  }
  if (peer.finishWriting) {
    ::shutdown(peer.socket.get(), SHUT_WR);
    peer.finishWriting = false;
    peer.writeClosed = true;
  }
}

void Mesh::beat() {
  for (Peer& peer : peers_) {
    {
      std::lock_guard lock(mutex_);
      if (peer.state != State::Alive || !peer.socket) continue;
      // What waits in the outbox is a sign of life already.
      if (peer.outboxBytes == 0 && !leaving_) enqueue(peer, Frame::Heartbeat, 0, nullptr, 0);
    }
    writeTo(peer);
    if (++peer.silentBeats <= silentBeatsAllowed) continue;
    const std::string reason =
        "nothing was heard of it for " + secondsText(heartbeatTimeout_) + " (it is stopped, or the network is cut)";
    // Before the connection closes: should the peer wake up again, it is to learn why it was given up.
    if (!left_) announce({peer.rank, reason});
    lose(peer, reason);
  }
}

void Mesh::startLeaving() {
  for (Peer& peer : peers_) {
    {
      std::lock_guard lock(mutex_);
      if (!peer.socket) continue;
      if (peer.state == State::Alive) {
        enqueue(peer, Frame::Farewell, 0, nullptr, 0);
        peer.finishWriting = true;
      }
    }
    writeTo(peer);
  }
}

// The connection is over. For a peer that said farewell, or if this rank is leaving itself, that is in order.
void Mesh::lose(Peer& peer, const std::string& reason) {
  bool isFailure = false;
  {
    std::lock_guard lock(mutex_);
    isFailure = peer.state == State::Alive && !leaving_;
    peer.socket = UniqueFd();
    peer.outbox.clear();
    peer.writing.clear();
    peer.outboxBytes = 0;
  }
  // The state comes last: a caller that sees it also sees the failure.
  if (isFailure) announce({peer.rank, reason});
  {
    std::lock_guard lock(mutex_);
    if (peer.state == State::Alive) peer.state = State::Lost;
  }
  changed_.notify_all();
}

// Spreads the news, then wakes the callers; only the first failure counts.
void Mesh::announce(RankFailure failure) {
  failure.reason.resize(std::min(failure.reason.size(), longestReason));
  std::vector<Peer*> told;
  {
    std::lock_guard lock(mutex_);
    if (failure_ || announcing_) return;
    announcing_ = true;
    for (Peer& peer : peers_) {
      if (peer.state != State::Alive || !peer.socket) continue;
      enqueue(peer, Frame::Failure, failure.rank, failure.reason.data(), failure.reason.size());
      told.push_back(&peer);
    }
  }
  for (Peer* peer : told) writeTo(*peer);
  logMessage(LogLevel::Warn, LogSubsystem::Net, "rank ", rank_, ": rank ", failure.rank, " failed: ", failure.reason);
  {
    std::lock_guard lock(mutex_);
    failure_ = failure;
  }
  changed_.notify_all();
  runCallbacks(failure);
}

void Mesh::runCallbacks(const RankFailure& failure) {
  std::lock_guard lock(callbackMutex_);
  if (callbacksRan_) return;
  callbacksRan_ = true;
  for (const auto& [subscription, callback] : callbacks_) callback(failure);
}

}  // namespace mscclpp::detail
