// Shared by the examples: starting the ranks, a check, and the exit status.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
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

/// Throws unless all ranks have the same bits.
template <class T>
void requireSameBits(mscclpp::Bootstrap& bootstrap, const std::vector<T>& output) {
  std::vector<std::size_t> hashes(static_cast<std::size_t>(bootstrap.getNranks()));
  const std::string_view bytes(reinterpret_cast<const char*>(output.data()), output.size() * sizeof(T));
  const std::size_t own = std::hash<std::string_view>()(bytes);
  hashes[static_cast<std::size_t>(bootstrap.getRank())] = own;
  bootstrap.allGather(hashes.data(), sizeof(std::size_t));
  for (const std::size_t hash : hashes) require(hash == own, "the results of the ranks are not bitwise equal");
}

}  // namespace example
