// Shared by the examples: starting the ranks, a check, and the exit status.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "mscclpp/host/launch/process_group.hpp"

namespace example {

/// Throws unless `condition`, so that the program fails.
inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error(message);
}

/// Runs body on `ranks` ranks: processes that this program starts, or that torchrun, mpirun or srun has started.
/// Returns the exit status for main.
inline int runOnRanks(int ranks, int argc, char** argv, const std::function<void(mscclpp::ProcessGroup&)>& body) {
  try {
    return mscclpp::runRanks(ranks, {argv, argv + argc}, body);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace example
