// Repeating an attempt until it succeeds or the deadline expires.
#pragma once

#include <algorithm>
#include <chrono>

#include "host/base/deadline.hpp"

namespace mscclpp::detail {

/// Calls `attempt` until its result converts to true, and returns the last result: a false one when the deadline has
/// expired or was cancelled. The pause between attempts grows from 1 ms to `maxPause`. There is at least one attempt,
/// and one after the last pause. What `attempt` throws is passed on.
template <class Attempt>
auto retryUntil(const Deadline& deadline, std::chrono::milliseconds maxPause, const Attempt& attempt) {
  std::chrono::milliseconds pause{1};
  while (true) {
    auto result = attempt();
    if (result || deadline.expired()) return result;
    deadline.sleep(pause);
    pause = std::min(pause * 2, maxPause);
  }
}

}  // namespace mscclpp::detail
