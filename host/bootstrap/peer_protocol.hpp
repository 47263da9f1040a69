// The protocol between the ranks of a mesh, at one end of its connections: what happens when a peer sends a message,
// leaves, violates the protocol, or disappears.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "host/bootstrap/mesh_state.hpp"

namespace mscclpp::detail {

/// Used by the thread of the mesh, without the mutex. No function blocks.
class PeerProtocol {
 public:
  explicit PeerProtocol(MeshState& mesh) : mesh_(mesh) {}

  /// Handles messages that have arrived. Returns whether everything that has arrived has been read.
  bool readFrom(MeshPeer& peer);
  /// Sends queued messages, as many as the socket accepts.
  void writeTo(MeshPeer& peer);
  void handleProcessEnd(MeshPeer& peer);
  /// The connection has ended. That is no failure if the peer said goodbye or this rank is leaving.
  void handleDisconnect(MeshPeer& peer, const std::string& reason);
  /// Reports the first failure to the peers, then wakes the callers. Later ones are only recorded.
  void reportFailure(RankFailure failure);
  /// Records that peers have left which said goodbye some time ago, if there was no failure that explains it.
  void finishDepartures();

  /// Since the last call of these functions: whether a message was written, and whether a socket operation failed for
  /// lack of memory.
  bool takeProgress() { return std::exchange(progressed_, false); }
  bool takeMemoryShortage() { return std::exchange(memoryIsShort_, false); }

 private:
  bool acceptHeader(MeshPeer& peer);
  bool handleMessage(MeshPeer& peer);
  void handleGoodbye(MeshPeer& peer);
  void discardFrom(MeshPeer& peer);
  void rejectPeer(MeshPeer& peer, const std::string& reason);
  bool countsAsFailure(const MeshPeer& peer);

  MeshState& mesh_;
  bool progressed_ = false;
  bool memoryIsShort_ = false;
  std::vector<char> discarded_;
};

}  // namespace mscclpp::detail
