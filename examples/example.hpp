// What the examples share: their ranks, a check, and the exit status.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "mscclpp/host/process_group.hpp"

namespace example {

/// Throws unless `good`, which ends the program with a failure.
inline void require(bool good, const std::string& complaint) {
  if (!good) throw std::runtime_error(complaint);
}

/// Runs body on `ranks` ranks: processes that this program starts, or that torchrun, mpirun or srun has started. Returns
/// the exit status for main.
inline int runOnRanks(int ranks, int argc, char** argv, const std::function<void(mscclpp::ProcessGroup&)>& body) {
  try {
    return mscclpp::runRanks(ranks, {argv, argv + argc}, body);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace example
