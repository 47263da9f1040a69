// How rank 0 hands a token to the other ranks of its host: over a local socket whose name follows from the job.
#pragma once

#include <string>

#include "deadline.hpp"
#include "mscclpp/host/bootstrap.hpp"

namespace mscclpp::detail {

/// Rank 0: returns when each of the other `numRanks - 1` ranks has taken the token. Both sides serve only processes of
/// their own user, and the name vanishes with the process, so there is nothing stale to find.
/// Throws Error(Timeout) that names the ranks which did not come.
void offerToken(const std::string& job, const UniqueId& token, int numRanks, Deadline deadline);

/// The other ranks: waits until rank 0 offers the token of this job. Throws Error(Timeout).
UniqueId takeToken(const std::string& job, int rank, Deadline deadline);

}  // namespace mscclpp::detail
