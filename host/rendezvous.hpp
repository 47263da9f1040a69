// How the ranks of a job meet: rank 0 gathers them, tells each where the others listen, and they connect pairwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deadline.hpp"
#include "mesh.hpp"
#include "unique_id.hpp"

namespace mscclpp::detail {

/// What a rank knows before it meets the others.
struct Attendance {
  int rank;
  int numRanks;
  std::uint64_t hostHash;
  std::string interfaces;  ///< Where to listen, in InterfaceFilter's form; empty: wherever the route to rank 0 leads.
  std::string family;      ///< "AF_INET", "AF_INET6" or "".
};

/// Called by every rank. Fills `mesh` with a connection to each other rank and returns the host hashes of all.
/// Throws Error(Timeout | InvalidUsage | RemoteError); the other ranks then throw too, with the same reason where they
/// can still be told.
std::vector<std::uint64_t> meet(const Attendance& self, const Rendezvous& rendezvous, Mesh& mesh, Deadline deadline);

}  // namespace mscclpp::detail
