// How rank 0 passes a UniqueId to the other ranks of its host: over a Unix-domain socket.
//
// Rank 0 listens at abstract names that begin with a prefix known to the ranks of the job and end in 128 random bits;
// the others search for such names. Both sides ask the kernel for the user at the other end. So another user can
// neither occupy the name, nor obtain the UniqueId, nor pass a false one: its sockets are ignored.
#pragma once

#include <string>
#include <vector>

#include "host/base/deadline.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::detail {

/// The prefix of the name of each socket for `job`, for this user.
std::string rendezvousPrefix(const std::string& job);

/// Rank 0: returns when each of the other `numRanks - 1` ranks has received the UniqueId. `jobs` are the names under
/// which the job may be known, one or more. Throws Error(Timeout) with the missing ranks, Error(InvalidUsage) if the
/// job has another rank 0, and SysError if the process is out of file descriptors.
void serveUniqueId(const std::vector<std::string>& jobs, const UniqueId& uniqueId, int numRanks, Deadline deadline);

/// The other ranks: receives the UniqueId from the rank 0 with which it has a name of the job in common. Throws
/// Error(Timeout).
UniqueId fetchUniqueId(const std::vector<std::string>& jobs, int rank, Deadline deadline);

}  // namespace mscclpp::detail
