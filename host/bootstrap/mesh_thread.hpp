// The thread of a PeerMesh: waits for its sockets, sends heartbeats, and says goodbye at the end.
#pragma once

#include <chrono>

#include "host/bootstrap/mesh_state.hpp"
#include "host/bootstrap/peer_protocol.hpp"

namespace mscclpp::detail {

class MeshThread {
 public:
  /// `heartbeatTimeout`: how long a peer may be silent; 0 = no limit.
  MeshThread(MeshState& mesh, std::chrono::milliseconds heartbeatTimeout)
      : mesh_(mesh), protocol_(mesh), heartbeatTimeout_(heartbeatTimeout) {}

  /// Serves the connections until the mesh is shutting down and all peers have received the goodbye, or have not for
  /// some time. Then no connection is open.
  void run() noexcept;

 private:
  struct PollSet;

  void serve();
  void fillPollSet(PollSet& set, bool withoutSockets);
  void handleEvents(const PollSet& set);
  void sendHeartbeats();
  bool mustSendGoodbyes();
  void sendGoodbyes();

  MeshState& mesh_;
  PeerProtocol protocol_;
  const std::chrono::milliseconds heartbeatTimeout_;
  bool goodbyesQueued_ = false;
};

}  // namespace mscclpp::detail
