#include "host/bootstrap/peer_mesh.hpp"

#include <cstring>
#include <utility>

#include "host/base/service_thread.hpp"
#include "host/bootstrap/mesh_thread.hpp"
#include "host/bootstrap/process_watch.hpp"
#include "host/bootstrap/request_text.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

// A sender blocks while more than this is queued for the peer. One message of any size is always accepted.
constexpr std::size_t sendQueueLimit = std::size_t{64} << 20;

}  // namespace

PeerMesh::PeerMesh(int rank, int numRanks, std::chrono::milliseconds heartbeatTimeout, std::size_t inboxLimit)
    : state_(rank, numRanks, inboxLimit), heartbeatTimeout_(heartbeatTimeout) {}

PeerMesh::~PeerMesh() {
  if (!thread_.joinable()) return;
  if (!owner_.isCurrent()) {  // the thread and the connections belong to the parent
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(state_.mutex);
    state_.shuttingDown = true;
  }
  state_.wakeThread();
  thread_.join();
}

void PeerMesh::setHeartbeatTimeout(std::chrono::milliseconds timeout) {
  if (thread_.joinable())
    throw Error("the heartbeat timeout cannot change once the ranks are connected", ErrorCode::InvalidUsage);
  heartbeatTimeout_ = timeout;
}

void PeerMesh::addPeer(int rank, UniqueFd socket) {
  const ProcessIdentity identity = ProcessIdentity::of(::getpid());
  {
    std::lock_guard lock(state_.mutex);
    MeshPeer& peer = state_.peers[rank];
    peer.socket = std::move(socket);
    peer.state = PeerState::Connected;
    peer.writer.push(encodeMessage(MessageType::Process, 0, &identity, sizeof(identity)));
  }
  if (thread_.joinable()) {
    state_.wakeThread();
    return;
  }
  thread_ = startServiceThread("mscclpp-mesh", [this] { MeshThread(state_, heartbeatTimeout_).run(); });
}

void PeerMesh::throwFailure(const std::string& request, std::optional<Deadline::Clock::time_point> start) const {
  const std::string waited = start ? ", after " + formatSeconds(Deadline::Clock::now() - *start) : "";
  const std::string prefix = "rank " + std::to_string(state_.rank) + ", " + request + ": ";
  const ErrorCode code = state_.failures.errorCode();
  if (code == ErrorCode::Aborted) throw Error(prefix + "the communication was aborted" + waited, code);
  throw Error(prefix + describe(*state_.failures.failure()) + waited, code);
}

template <class Ready>
bool PeerMesh::waitUntil(std::unique_lock<std::mutex>& lock, Deadline deadline, const Ready& ready) {
  ++state_.blockedCalls;
  const bool inTime = state_.changed->wait_until(lock, deadline.timePoint(), ready);
  --state_.blockedCalls;
  return inTime;
}

// A rank that is leaving may have sent everything; its reason is not known yet.
bool PeerMesh::mayStillSend(const MeshPeer& peer) const {
  return peer.rank == state_.rank || peer.state == PeerState::Connected || peer.state == PeerState::Leaving;
}

void PeerMesh::send(int peer, int tag, const void* data, std::size_t size, const char* operation, Deadline deadline) {
  const auto request = [&] { return describeRequest(operation, Direction::Send, peer, tag, size); };
  const auto start = Deadline::Clock::now();
  std::unique_lock lock(state_.mutex);
  if (peer == state_.rank) {
    if (state_.failures.hasFailed()) throwFailure(request(), std::nullopt);
    const char* bytes = static_cast<const char*>(data);
    state_.inbox.put(peer, tag, Bytes(bytes, bytes + size));
    state_.changed->notify_all();
    return;
  }
  MeshPeer& target = state_.peers[peer];
  const auto ready = [&] {
    if (state_.failures.hasFailed() || !mayStillSend(target)) return true;
    if (target.state != PeerState::Connected) return false;
    const std::size_t queued = target.writer.bytes();
    return queued == 0 || queued + size <= sendQueueLimit;
  };
  const bool inTime = waitUntil(lock, deadline, ready);
  if (state_.failures.hasFailed()) throwFailure(request(), start);
  const std::string prefix = "rank " + std::to_string(state_.rank) + ", " + request() + ": ";
  if (target.state != PeerState::Connected) throw Error(prefix + describeDeparture(peer), ErrorCode::RemoteError);
  if (!inTime) {
    throw Error(prefix + "the queue of messages to that rank has been full for " +
                    formatSeconds(Deadline::Clock::now() - start),
                ErrorCode::Timeout);
  }
  target.writer.push(encodeMessage(MessageType::Data, tag, data, size));
  state_.wakeThread();
}

bool PeerMesh::needNotWait(int peer, int tag) const {
  return state_.inbox.contains(peer, tag) || state_.failures.hasFailed() || !mayStillSend(state_.peers[peer]) ||
         state_.contexts.hasLeft(contextOf(tag), peer);
}

int PeerMesh::waitForAny(const std::vector<int>& peers, int tag, Deadline deadline) {
  auto found = peers.begin();
  std::unique_lock lock(state_.mutex);
  const bool inTime = waitUntil(lock, deadline, [&] {
    found = std::find_if(peers.begin(), peers.end(), [&](int peer) { return needNotWait(peer, tag); });
    return found != peers.end();
  });
  return inTime ? *found : peers.front();
}

void PeerMesh::recv(int peer, int tag, void* data, std::size_t size, const char* operation, Deadline deadline) {
  const auto request = [&] { return describeRequest(operation, Direction::Receive, peer, tag, size); };
  const auto start = Deadline::Clock::now();
  std::unique_lock lock(state_.mutex);
  waitUntil(lock, deadline, [&] { return needNotWait(peer, tag); });
  const std::optional<Bytes> message = state_.inbox.take(peer, tag);
  // Messages that arrived before a failure are still delivered; only a call that would have to wait throws.
  if (!message && state_.failures.hasFailed()) throwFailure(request(), start);
  const bool hasLeft = !mayStillSend(state_.peers[peer]) || state_.contexts.hasLeft(contextOf(tag), peer);
  lock.unlock();
  const std::string prefix = "rank " + std::to_string(state_.rank) + ", " + request() + ": ";
  if (!message && hasLeft) {
    throw Error(prefix + describeDeparture(peer) + " without sending this message", ErrorCode::RemoteError);
  }
  if (!message) {
    throw Error(prefix + "nothing arrived within " + formatSeconds(Deadline::Clock::now() - start) +
                    "; did that rank make the matching call?",
                ErrorCode::Timeout);
  }
  if (message->size() != size) {
    throw Error(prefix + "rank " + std::to_string(peer) + " sent " + std::to_string(message->size()) + " bytes where " +
                    std::to_string(size) + " were expected",
                ErrorCode::InvalidUsage);
  }
  if (size > 0) std::memcpy(data, message->data(), size);
}

void PeerMesh::check(const char* operation) const {
  if (state_.failures.hasFailed()) throwFailure(operation, std::nullopt);
}

void PeerMesh::failSelf(const RankFailure& failure, bool isAbort) noexcept {
  try {
    std::lock_guard lock(state_.mutex);
    if (!state_.failures.hasFailed() && !std::exchange(state_.reportingFailure, true))
      state_.queueFailureReport(failure);
  } catch (const std::exception&) {  // out of memory for the report: the peers notice when this rank leaves
  }
  if (isAbort) {
    state_.failures.abort(failure);
  } else {
    state_.failures.fail(failure);
  }
  state_.wakeThread();
}

void PeerMesh::leaveContext(int context, const std::vector<int>& ranks) noexcept {
  if (!owner_.isCurrent()) return;  // a forked child has left nothing
  try {
    {
      std::lock_guard lock(state_.mutex);
      for (const int rank : ranks) {
        MeshPeer& peer = state_.peers[static_cast<std::size_t>(rank)];
        if (peer.state != PeerState::Connected || !peer.socket) continue;
        peer.writer.push(encodeMessage(MessageType::ContextLeft, context, nullptr, 0));
      }
    }
    state_.wakeThread();
  } catch (const std::exception&) {  // out of memory: the peers notice when this rank leaves the job
  }
}

void PeerMesh::fail(const std::string& reason) {
  failSelf({state_.rank, reason.substr(0, MessageHeader::maxControlBytes)}, false);
}

void PeerMesh::abort() noexcept {
  try {
    failSelf({state_.rank, "it was aborted"}, true);
  } catch (const std::exception&) {  // out of memory for the reason
    failSelf({state_.rank, {}}, true);
  }
}

bool PeerMesh::abortBlocked() noexcept {
  {
    std::lock_guard lock(state_.mutex);
    if (state_.blockedCalls == 0) return false;
  }
  abort();
  return true;
}

}  // namespace mscclpp::detail
