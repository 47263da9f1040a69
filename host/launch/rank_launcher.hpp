// Starts the ranks of a job as processes of this program, monitors them, and reports the first failure.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace mscclpp::detail {

/// The launching process of runRanks: returns its exit status when all ranks have ended and been reaped. If one failed,
/// the status is 1 and the reason is printed to stderr. Throws Error(InvalidUsage) for an invalid number of ranks or a
/// missing program name. While ranks are running SIGCHLD is not ignored; the caller's setting is restored afterwards.
int launchRanks(int numRanks, const std::vector<std::string>& arguments);

/// A rank of runRanks: runs `body` and returns the exit status of this process. An exception of `body` is reported to
/// the launching process, or printed to stderr if another launcher started this rank; the status is then 1.
int runRank(int rank, const std::function<void()>& body);

/// Prints the reason to stderr, for a process that cannot start its part of the job. Returns the exit status, 1.
int reportFailure(const std::exception& error);

}  // namespace mscclpp::detail
