// What the calls and the thread of a PeerMesh share: the peers, the inbox, the failures, and how the two wake each
// other.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/fork_safe_condition.hpp"
#include "host/base/unique_fd.hpp"
#include "host/bootstrap/context_departures.hpp"
#include "host/bootstrap/failure_state.hpp"
#include "host/bootstrap/message_inbox.hpp"
#include "host/bootstrap/message_stream.hpp"

namespace mscclpp::detail {

/// Leaving: it has said goodbye. It becomes Left unless a failure that made it leave is detected shortly after.
enum class PeerState { NotConnected, Connected, Leaving, Left, Failed };

struct MeshPeer {
  int rank = -1;

  // Guarded by the mutex of the MeshState.
  PeerState state = PeerState::NotConnected;
  UniqueFd socket;  // set once; closed by the thread

  MessageWriter writer;  // any thread adds messages

  // Used by the thread.
  MessageReader reader;
  UniqueFd process;  // becomes readable when the peer's process has ended; empty if that cannot be watched
  Deadline departure = Deadline::after(std::chrono::milliseconds(0));  // when a peer in state Leaving becomes Left
  bool closeAfterWrite = false;                                        // half-close when everything is written
  bool writeClosed = false;
  bool discarding = false;  // its further messages are discarded
  int missedHeartbeats = 0;
};

struct MeshState {
  MeshState(int ownRank, int numRanks, std::size_t inboxLimit);

  /// Makes the thread look at the state again.
  void wakeThread() noexcept;
  /// To be called by the thread before it looks at the state.
  void clearWakeup() noexcept;
  /// Makes the waiting calls look at the state again. Without the mutex.
  void wakeCallers() noexcept;

  /// With the mutex held: queues a report for every connected peer; these are added to `receivers`, if given.
  void queueFailureReport(const RankFailure& failure, std::vector<MeshPeer*>* receivers = nullptr);
  /// Without the mutex, by the thread: ends the connection, even if a forked child holds a copy of the socket.
  void closeSocket(MeshPeer& peer) noexcept;

  const int rank;
  const UniqueFd wakeup;
  FailureState failures;
  ContextDepartures contexts;

  std::mutex mutex;
  ForkSafeCondition changed;
  // Guarded by the mutex, unless MeshPeer says otherwise.
  std::vector<MeshPeer> peers;
  MessageInbox inbox;
  int blockedCalls = 0;
  bool reportingFailure = false;  // the first failure is being reported to the peers
  bool shuttingDown = false;
};

}  // namespace mscclpp::detail
