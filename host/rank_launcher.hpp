// Starts the ranks of a job as processes of this program, watches them, and brings back the first thing that failed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mscclpp::detail {

/// The launching side of runRanks.
void launchRanks(int numRanks, const std::vector<std::string>& arguments);

/// The launched side: runs `body` and returns the exit status of this process. What `body` throws is reported to the
/// launcher; if none listens (the variables were set by hand), it is thrown on.
int runLaunchedRank(int rank, const std::function<void()>& body);

}  // namespace mscclpp::detail
