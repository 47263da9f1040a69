// Attempts to find a mutant that is wrong only if a rank or thread is late.
#pragma once

#include <cstdint>

namespace mscclpp::test {

/// Whether a mutant is found in one of several attempts: isFound(factor) makes one with delays and timeouts `factor`
/// times as long, 1, 2, 4 and so on to 32. On a busy machine the other ranks may not get their turn before a late one
/// goes on.
template <class IsFound>
bool isFoundWithLongerDelays(const IsFound& isFound) {
  for (std::uint64_t factor = 1; factor <= 32; factor *= 2) {
    if (isFound(factor)) return true;
  }
  return false;
}

}  // namespace mscclpp::test
