#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "mesh.hpp"
#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "process_identity.hpp"
#include "rendezvous.hpp"
#include "socket_address.hpp"
#include "unique_id.hpp"

namespace mscclpp {

using namespace std::chrono_literals;
using detail::Deadline;
using detail::Mesh;

namespace {

// The collectives' messages; a user's tags are never negative.
constexpr int allGatherTag = -1;
constexpr int barrierTag = -2;
constexpr int broadcastTag = -3;

void requireSize(const char* operation, const void* data, int size) {
  if (size < 0) {
    throw Error(std::string(operation) + ": the size must not be negative, but it is " + std::to_string(size),
                ErrorCode::InvalidUsage);
  }
  if (data == nullptr && size > 0) {
    throw Error(std::string(operation) + ": the buffer is null", ErrorCode::InvalidUsage);
  }
}

}  // namespace

class TcpBootstrap::Session {
 public:
  enum class State { Fresh, Meeting, Ready, Failed };

  Session(int rank, int numRanks)
      : rank(rank),
        numRanks(numRanks),
        timeout(env()->bootstrapTimeout),
        mesh(rank, numRanks, env()->heartbeatTimeout) {}

  struct Meeting {
    detail::Rendezvous rendezvous;
    std::string interfaces;
  };

  /// `find` says where to meet, and may take until the deadline.
  void initialize(std::int64_t timeoutSec, const std::function<Meeting(const Deadline&)>& find) {
    if (timeoutSec <= 0) throw Error("initialize: the timeout must be 1 second or more", ErrorCode::InvalidUsage);
    if (State fresh = State::Fresh; !state.compare_exchange_strong(fresh, State::Meeting)) {
      throw Error("initialize was called before on this bootstrap: make a new TcpBootstrap to meet again",
                  ErrorCode::InvalidUsage);
    }
    const Deadline deadline =
        Deadline::after(std::chrono::seconds(std::min<std::int64_t>(timeoutSec, 1'000'000'000))).orWhen(abandoned);
    Meeting meeting;
    try {
      meeting = find(deadline);
    } catch (const BaseError&) {
      leaveMeeting(State::Fresh);
      throw;
    }
    uniqueId = detail::toUniqueId(meeting.rendezvous);
    const detail::Attendance self{rank, numRanks, detail::hostHash(), meeting.interfaces, env()->socketFamily};
    try {
      hostHashes = detail::meet(self, meeting.rendezvous, mesh, deadline);
      // Nobody returns before everybody is connected to everybody.
      barrier("initialize", deadline.later(500ms));
      leaveMeeting(State::Ready);
    } catch (const BaseError& error) {
      state = State::Failed;
      if (abandoned) mesh.check("initialize");
      mesh.fail(error.what());
      throw;
    }
  }

  void leaveMeeting(State next) {
    State meeting = State::Meeting;
    if (state.compare_exchange_strong(meeting, next)) return;
    throw Error("rank " + std::to_string(rank) + ", initialize: the communication was aborted", ErrorCode::Aborted);
  }

  // Either initialize has returned, or it sees this.
  bool abortBlocked() noexcept {
    State meeting = State::Meeting;
    if (!state.compare_exchange_strong(meeting, State::Failed)) return mesh.abortBlocked();
    mesh.abort();
    abandoned = true;
    return true;
  }

  void require(const char* operation) const {
    if (state == State::Ready) return;
    throw Error(std::string(operation) + ": call initialize first" +
                    (state == State::Failed ? "; the earlier call did not succeed, so make a new TcpBootstrap" : ""),
                ErrorCode::InvalidUsage);
  }

  void requirePeer(const char* operation, int peer, int tag) const {
    require(operation);
    if (peer < 0 || peer >= numRanks) {
      throw Error(std::string(operation) + ": there is no rank " + std::to_string(peer) + ", the ranks are 0 to " +
                      std::to_string(numRanks - 1),
                  ErrorCode::InvalidUsage);
    }
    if (tag < 0) {
      throw Error(std::string(operation) + ": the tag must not be negative, but it is " + std::to_string(tag),
                  ErrorCode::InvalidUsage);
    }
  }

  Deadline deadline() const { return Deadline::after(timeout.load()); }

  // Dissemination: after round k each rank knows of 2^k others.
  void barrier(const char* operation, Deadline deadline) {
    for (int distance = 1; distance < numRanks; distance *= 2) {
      char token = 0;
      mesh.send((rank + distance) % numRanks, barrierTag, &token, sizeof(token), operation, deadline);
      mesh.recv((rank - distance + numRanks) % numRanks, barrierTag, &token, sizeof(token), operation, deadline);
    }
  }

  const int rank;
  const int numRanks;
  std::atomic<std::chrono::milliseconds> timeout;
  std::atomic<State> state{State::Fresh};
  std::atomic<bool> abandoned = false;  // initialize, by abortBlocked
  UniqueId uniqueId{};
  std::vector<std::uint64_t> hostHashes;
  Mesh mesh;
};

TcpBootstrap::TcpBootstrap(int rank, int nRanks) {
  if (nRanks < 1 || rank < 0 || rank >= nRanks) {
    throw Error("TcpBootstrap: rank " + std::to_string(rank) + " of " + std::to_string(nRanks) +
                    " does not exist: it must be at least 0 and less than the number of ranks",
                ErrorCode::InvalidUsage);
  }
  session_ = std::make_unique<Session>(rank, nRanks);
}

TcpBootstrap::~TcpBootstrap() = default;

UniqueId TcpBootstrap::createUniqueId() {
  const detail::SocketAddress local = detail::chooseLocalAddress(env()->socketIfname, env()->socketFamily);
  return detail::toUniqueId({detail::reservePort(local), detail::makeSecret()});
}

UniqueId TcpBootstrap::getUniqueId() const {
  if (session_->state == Session::State::Fresh) {
    throw Error("getUniqueId: call initialize first; createUniqueId makes a new token", ErrorCode::InvalidUsage);
  }
  return session_->uniqueId;
}

void TcpBootstrap::initialize(const UniqueId& uniqueId, std::int64_t timeoutSec) {
  session_->initialize(timeoutSec, [&](const Deadline&) {
    return Session::Meeting{detail::fromUniqueId(uniqueId), env()->socketIfname};
  });
}

void TcpBootstrap::initialize(const std::string& address, std::int64_t timeoutSec) {
  session_->initialize(timeoutSec, [&](const Deadline& deadline) {
    const detail::MeetingPoint point = detail::parseMeetingPoint(address, deadline);
    return Session::Meeting{{point.address, detail::secretForAddress(point.address)},
                            point.interface.empty() ? env()->socketIfname : "=" + point.interface};
  });
}

int TcpBootstrap::getRank() const {
  return session_->rank;
}

int TcpBootstrap::getNranks() const {
  return session_->numRanks;
}

int TcpBootstrap::getNranksPerNode() const {
  session_->require("getNranksPerNode");
  const auto& hashes = session_->hostHashes;
  return static_cast<int>(std::count(hashes.begin(), hashes.end(), hashes[session_->rank]));
}

bool TcpBootstrap::abortBlocked() noexcept {
  return session_->abortBlocked();
}

void TcpBootstrap::send(void* data, int size, int peer, int tag) {
  session_->requirePeer("send", peer, tag);
  requireSize("send", data, size);
  session_->mesh.send(peer, tag, data, static_cast<std::size_t>(size), "send", session_->deadline());
}

void TcpBootstrap::recv(void* data, int size, int peer, int tag) {
  session_->requirePeer("recv", peer, tag);
  requireSize("recv", data, size);
  session_->mesh.recv(peer, tag, data, static_cast<std::size_t>(size), "recv", session_->deadline());
}

void TcpBootstrap::allGather(void* allData, int size) {
  session_->require("allGather");
  requireSize("allGather", allData, size);
  const int rank = session_->rank, numRanks = session_->numRanks;
  const std::size_t bytes = static_cast<std::size_t>(size);
  const Deadline deadline = session_->deadline();
  char* slots = static_cast<char*>(allData);
  for (int distance = 1; distance < numRanks; ++distance) {
    const int to = (rank + distance) % numRanks;
    session_->mesh.send(to, allGatherTag, slots + rank * bytes, bytes, "allGather", deadline);
  }
  for (int distance = 1; distance < numRanks; ++distance) {
    const int from = (rank - distance + numRanks) % numRanks;
    session_->mesh.recv(from, allGatherTag, slots + from * bytes, bytes, "allGather", deadline);
  }
}

void TcpBootstrap::barrier() {
  session_->require("barrier");
  session_->barrier("barrier", session_->deadline());
}

void TcpBootstrap::broadcast(void* data, int size, int root) {
  session_->requirePeer("broadcast", root, 0);
  requireSize("broadcast", data, size);
  const int numRanks = session_->numRanks;
  const std::size_t bytes = static_cast<std::size_t>(size);
  const Deadline deadline = session_->deadline();
  // A binomial tree over positions relative to the root: the lowest set bit of a position says from whom it receives,
  // and the bits below that one to whom it sends.
  const int position = (session_->rank - root + numRanks) % numRanks;
  int bit = 1;
  while (bit < numRanks && (position & bit) == 0) bit *= 2;
  if (position != 0) {
    session_->mesh.recv((position - bit + root) % numRanks, broadcastTag, data, bytes, "broadcast", deadline);
  }
  for (bit /= 2; bit > 0; bit /= 2) {
    if (position + bit >= numRanks) continue;
    session_->mesh.send((position + bit + root) % numRanks, broadcastTag, data, bytes, "broadcast", deadline);
  }
}

void TcpBootstrap::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout <= 0ms) throw Error("setTimeout: the timeout must be positive", ErrorCode::InvalidUsage);
  session_->timeout = timeout;
}

void TcpBootstrap::setHeartbeatTimeout(std::chrono::milliseconds timeout) {
  if (timeout < 0ms) throw Error("setHeartbeatTimeout: the timeout must not be negative", ErrorCode::InvalidUsage);
  session_->mesh.setHeartbeatTimeout(timeout);
}

std::optional<RankFailure> TcpBootstrap::failure() const {
  return session_->mesh.failure();
}

Liveness::Subscription TcpBootstrap::onFailure(FailureCallback callback) {
  return session_->mesh.subscribe(std::move(callback));
}

void TcpBootstrap::unsubscribe(Subscription subscription) noexcept {
  session_->mesh.unsubscribe(subscription);
}

}  // namespace mscclpp
