// One connection to every other rank, served by one thread: tagged messages, heartbeats, goodbyes and failure reports.
//
// Only that thread (MeshThread) uses the sockets. Callers put messages into send queues and take messages from an inbox
// (MeshState), so no call ever blocks on the network itself, and two ranks that send to each other cannot deadlock.
//
// A connection that ends without a goodbye means that its rank failed. The rank that notices first reports it to the
// others before it wakes its own callers: even if those leave at once, the report precedes their goodbye and names the
// rank that failed first.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"
#include "host/bootstrap/failure_state.hpp"
#include "host/bootstrap/mesh_state.hpp"

namespace mscclpp::detail {

class PeerMesh {
 public:
  /// One message of the maximum size always fits.
  static constexpr std::size_t defaultInboxLimit = std::size_t{2} << 30;

  /// `heartbeatTimeout`: how long a peer may be silent; 0 = no limit. `inboxLimit`: a peer is treated as failed when
  /// more bytes of its messages than this are waiting here to be received.
  PeerMesh(int rank, int numRanks, std::chrono::milliseconds heartbeatTimeout,
           std::size_t inboxLimit = defaultInboxLimit);
  /// Sends a goodbye to all peers, waits briefly for its delivery, and joins the thread.
  ~PeerMesh();
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;

  /// To be called before the first addPeer.
  void setHeartbeatTimeout(std::chrono::milliseconds timeout);

  /// Takes over an authenticated connection. The first call starts the thread.
  void addPeer(int rank, UniqueFd socket);

  /// Marks this rank as failed: the reason is reported to the peers, and all calls here throw.
  void fail(const std::string& reason);

  /// Ends all blocked and all later calls with Error(Aborted); the abort is reported to the peers.
  void abort() noexcept;
  /// The same if any call is blocked, which it returns; otherwise it has no effect.
  bool abortBlocked() noexcept;

  /// Returns when the message is queued; blocks only while the queue is full. `operation` names the call in errors. A
  /// rank may send to itself.
  void send(int peer, int tag, const void* data, std::size_t size, const char* operation, Deadline deadline);
  /// Receives the next message of (peer, tag), whose size must be `size`.
  void recv(int peer, int tag, void* data, std::size_t size, const char* operation, Deadline deadline);

  /// One of `peers` for which a recv of this tag would not wait now: its message is here, or cannot come. Blocks until
  /// there is one; at the deadline it is the first.
  int waitForAny(const std::vector<int>& peers, int tag, Deadline deadline);

  /// Tells `ranks` that this rank leaves a context that they are in: their calls that wait for its data in the context
  /// throw, and their mesh's contextDepartures() say so. This rank makes no more calls in it.
  void leaveContext(int context, const std::vector<int>& ranks) noexcept;
  ContextDepartures& contextDepartures() noexcept { return state_.contexts; }

  /// Throws if a failure has been detected.
  void check(const char* operation) const;

  /// The failures and departures detected so far.
  FailureState& failures() noexcept { return state_.failures; }
  const FailureState& failures() const noexcept { return state_.failures; }

 private:
  template <class Ready>
  bool waitUntil(std::unique_lock<std::mutex>& lock, Deadline deadline, const Ready& ready);
  /// For a call that began at `start`, if it has waited.
  [[noreturn]] void throwFailure(const std::string& request, std::optional<Deadline::Clock::time_point> start) const;
  bool mayStillSend(const MeshPeer& peer) const;
  /// With the mutex held.
  bool needNotWait(int peer, int tag) const;
  void failSelf(const RankFailure& failure, bool isAbort) noexcept;

  MeshState state_;
  std::chrono::milliseconds heartbeatTimeout_;
  const OwnerProcess owner_;
  std::thread thread_;
};

}  // namespace mscclpp::detail
