#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "host/base/process_identity.hpp"
#include "host/bootstrap/dissemination.hpp"
#include "host/bootstrap/peer_mesh.hpp"
#include "host/bootstrap/rendezvous.hpp"
#include "host/bootstrap/unique_id.hpp"
#include "host/net/socket_address.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

using namespace std::chrono_literals;
using detail::Deadline;
using detail::PeerMesh;

namespace {

// Tags of the collectives; user tags are never negative.
constexpr int allGatherTag = -1;
constexpr int barrierTag = -2;
constexpr int broadcastTag = -3;

// Each rank keeps a connection to every other.
constexpr int maxRanks = 1 << 16;

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
  enum class State { Created, Connecting, Ready, Failed };

  Session(int rank, int numRanks)
      : rank(rank),
        numRanks(numRanks),
        timeout(env()->bootstrapTimeout),
        mesh(rank, numRanks, env()->heartbeatTimeout) {
    mesh.failures().onFailure([this](const RankFailure&) { failedOrAborted.set(); });
  }

  struct RendezvousConfig {
    detail::Rendezvous rendezvous;
    std::string interfaces;
  };

  Deadline deadlineAfter(std::int64_t timeoutSec) const {
    if (timeoutSec == 0) {
      throw Error("initialize: the timeout must be 1 second or more, or negative for that of the other calls",
                  ErrorCode::InvalidUsage);
    }
    return timeoutSec < 0 ? Deadline::after(timeout.load()) : Deadline::afterSeconds(timeoutSec);
  }

  void initialize(const UniqueId& id, const Deadline& deadline) {
    initialize(deadline, [&](const Deadline&) {
      return RendezvousConfig{detail::fromUniqueId(id), env()->socketIfname};
    });
  }
  void initialize(const std::string& address, const Deadline& deadline) {
    initialize(deadline, [&](const Deadline& cancellable) {
      const detail::RendezvousAddress rendezvous = detail::parseRendezvousAddress(address, cancellable);
      return RendezvousConfig{{rendezvous.address, detail::secretForAddress(rendezvous.address)},
                              rendezvous.interface.empty() ? env()->socketIfname : "=" + rendezvous.interface};
    });
  }

  /// `makeConfig` returns the rendezvous address, and may take until the deadline.
  void initialize(const Deadline& timeLimit, const std::function<RendezvousConfig(const Deadline&)>& makeConfig) {
    if (State expected = State::Created; !state.compare_exchange_strong(expected, State::Connecting)) {
      throw Error("initialize was called before on this bootstrap: make a new TcpBootstrap to connect again",
                  ErrorCode::InvalidUsage);
    }
    const Deadline deadline = timeLimit.orWhenCancelled(failedOrAborted);
    RendezvousConfig config;
    try {
      config = makeConfig(deadline);
    } catch (const std::exception&) {
      finishConnecting(State::Created);
      throw;
    }
    uniqueId = detail::toUniqueId(config.rendezvous);
    const detail::LocalRankInfo self{rank, numRanks, detail::hostHash(), config.interfaces, env()->socketFamily};
    try {
      hostHashes = detail::connectAllRanks(self, config.rendezvous, mesh, deadline);
      // No rank returns before every rank is connected to every other.
      barrier("initialize", deadline.extendedBy(500ms));
      finishConnecting(State::Ready);
    } catch (const std::exception& error) {
      state = State::Failed;
      if (failedOrAborted.isSet()) mesh.check("initialize");
      mesh.fail(error.what());
      throw;
    }
  }

  void finishConnecting(State next) {
    State expected = State::Connecting;
    if (state.compare_exchange_strong(expected, next)) return;
    throw Error("rank " + std::to_string(rank) + ", initialize: the communication was aborted", ErrorCode::Aborted);
  }

  // Either initialize has returned, or the failure of the mesh cancels its deadline.
  bool abortConnecting() noexcept {
    State expected = State::Connecting;
    if (!state.compare_exchange_strong(expected, State::Failed)) return false;
    mesh.abort();
    return true;
  }

  void requireReady(const char* operation) const {
    if (state == State::Ready) return;
    throw Error(std::string(operation) + ": call initialize first" +
                    (state == State::Failed ? "; the earlier call did not succeed, so make a new TcpBootstrap" : ""),
                ErrorCode::InvalidUsage);
  }

  void requirePeer(const char* operation, int peer, int tag) const {
    requireReady(operation);
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

  void barrier(const char* operation, Deadline deadline) {
    char token = 0;
    detail::disseminationBarrier(
        rank, numRanks, [&](int to) { mesh.send(to, barrierTag, &token, sizeof(token), operation, deadline); },
        [&](int from) { mesh.recv(from, barrierTag, &token, sizeof(token), operation, deadline); });
  }

  const int rank;
  const int numRanks;
  std::atomic<std::chrono::milliseconds> timeout;
  std::atomic<State> state{State::Created};
  detail::Event failedOrAborted;  // set when the mesh is; cancels the deadline of initialize
  UniqueId uniqueId{};
  std::vector<std::uint64_t> hostHashes;
  PeerMesh mesh;
};

TcpBootstrap::TcpBootstrap(int rank, int nRanks) {
  if (nRanks < 1 || rank < 0 || rank >= nRanks) {
    throw Error("TcpBootstrap: rank " + std::to_string(rank) + " of " + std::to_string(nRanks) +
                    " does not exist: it must be at least 0 and less than the number of ranks",
                ErrorCode::InvalidUsage);
  }
  if (nRanks > maxRanks) {
    throw Error("TcpBootstrap: it connects up to " + std::to_string(maxRanks) + " ranks, not " + std::to_string(nRanks),
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
  if (session_->state == Session::State::Created) {
    throw Error("getUniqueId: call initialize first; createUniqueId makes a new token", ErrorCode::InvalidUsage);
  }
  return session_->uniqueId;
}

void TcpBootstrap::initialize(UniqueId uniqueId, std::int64_t timeoutSec) {
  session_->initialize(uniqueId, session_->deadlineAfter(timeoutSec));
}

void TcpBootstrap::initialize(const std::string& address, std::int64_t timeoutSec) {
  session_->initialize(address, session_->deadlineAfter(timeoutSec));
}

void TcpBootstrap::initializeUntil(const detail::Deadline& deadline, const UniqueId& uniqueId) {
  session_->initialize(uniqueId, deadline);
}

void TcpBootstrap::initializeUntil(const detail::Deadline& deadline, const std::string& address) {
  session_->initialize(address, deadline);
}

detail::ContextDepartures& TcpBootstrap::contextDepartures() noexcept {
  return session_->mesh.contextDepartures();
}

void TcpBootstrap::leaveContext(int context, const std::vector<int>& ranks) noexcept {
  session_->mesh.leaveContext(context, ranks);
}

int TcpBootstrap::waitForAny(const std::vector<int>& ranks, int tag) {
  for (const int rank : ranks) session_->requirePeer("waitForAny", rank, tag);
  return session_->mesh.waitForAny(ranks, tag, session_->deadline());
}

int TcpBootstrap::getRank() const {
  return session_->rank;
}

int TcpBootstrap::getNranks() const {
  return session_->numRanks;
}

int TcpBootstrap::getNranksPerNode() const {
  session_->requireReady("getNranksPerNode");
  const auto& hashes = session_->hostHashes;
  return static_cast<int>(std::count(hashes.begin(), hashes.end(), hashes[session_->rank]));
}

bool TcpBootstrap::abortBlocked() noexcept {
  return session_->abortConnecting() || session_->mesh.abortBlocked();
}

void TcpBootstrap::abort() noexcept {
  if (!session_->abortConnecting()) session_->mesh.abort();
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
  session_->requireReady("allGather");
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
  session_->requireReady("barrier");
  session_->barrier("barrier", session_->deadline());
}

void TcpBootstrap::broadcast(void* data, int size, int root) {
  session_->requirePeer("broadcast", root, 0);
  requireSize("broadcast", data, size);
  const int numRanks = session_->numRanks;
  const std::size_t bytes = static_cast<std::size_t>(size);
  const Deadline deadline = session_->deadline();
  // A binomial tree over positions relative to the root: the lowest set bit of a position gives the rank it receives
  // from, and the bits below that one the ranks it sends to.
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
  return session_->mesh.failures().failure();
}

FailureDetector::Subscription TcpBootstrap::onFailure(FailureCallback callback) {
  return session_->mesh.failures().onFailure(std::move(callback));
}

FailureDetector::Subscription TcpBootstrap::onLaterFailure(FailureCallback callback) {
  return session_->mesh.failures().onLaterFailure(std::move(callback));
}

FailureDetector::Subscription TcpBootstrap::onDeparture(DepartureCallback callback) {
  return session_->mesh.failures().onDeparture(std::move(callback));
}

void TcpBootstrap::unsubscribe(Subscription subscription) noexcept {
  session_->mesh.failures().unsubscribe(subscription);
}

}  // namespace mscclpp
