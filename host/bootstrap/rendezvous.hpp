// How the ranks of a job connect: each joins rank 0, which sends the addresses of all ranks; then they connect
// pairwise.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/bootstrap/peer_mesh.hpp"
#include "host/bootstrap/unique_id.hpp"

namespace mscclpp::detail {

/// What a rank knows before it is connected.
struct LocalRankInfo {
  int rank;
  int numRanks;
  std::uint64_t hostHash;
  std::string interfaces;  ///< Where to listen, in InterfaceFilter's form; empty: on the route to rank 0.
  std::string family;      ///< "AF_INET", "AF_INET6" or "".
};

/// Called by every rank. Fills `mesh` with a connection to each other rank and returns the host hashes of all ranks.
/// Throws Error(Timeout | InvalidUsage | RemoteError); the other ranks then throw too, with the same reason if it can
/// still be sent to them. When `mesh` fails or is aborted, the caller cancels the deadline: the error may then be
/// Error(Timeout), and the failure of the mesh is the cause.
std::vector<std::uint64_t> connectAllRanks(const LocalRankInfo& self, const Rendezvous& rendezvous, PeerMesh& mesh,
                                           Deadline deadline);

/// Called in place of connectAllRanks by a rank 0 that cannot connect its ranks: tells the next `count` that join, if
/// they do within some seconds, why. Returns how many have. Throws what binding the address throws.
int refuseRanks(const LocalRankInfo& self, const Rendezvous& rendezvous, const std::exception& reason, int count);

/// Called in place of connectAllRanks by another rank that cannot be connected: ends the rendezvous of the others, if
/// rank 0 comes within some seconds, which it returns.
bool giveUpJoining(int rank, const Rendezvous& rendezvous) noexcept;

}  // namespace mscclpp::detail
