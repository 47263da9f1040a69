// A point in time at which a blocking call times out; it can be cancelled earlier.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <string>

#include "host/base/event.hpp"

namespace mscclpp::detail {

/// For messages: "0.3 s".
inline std::string formatSeconds(std::chrono::steady_clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds duration) {
    // Long enough to be "never", short enough that arithmetic on it does not overflow.
    constexpr std::chrono::milliseconds maxDuration = std::chrono::hours(24 * 365);
    const auto now = Clock::now();
    return Deadline(now, now + std::clamp(duration, std::chrono::milliseconds(0), maxDuration));
  }

  /// The same for a timeout in seconds of any size, as users give it.
  static Deadline afterSeconds(std::int64_t seconds) {
    return after(std::chrono::seconds(std::clamp<std::int64_t>(seconds, 0, 1'000'000'000)));
  }

  Clock::time_point timePoint() const { return timePoint_; }
  /// The time since the start of the call that has this deadline; for messages.
  std::string elapsedText() const { return formatSeconds(Clock::now() - start_); }
  bool expired() const { return isCancelled() || Clock::now() >= timePoint_; }

  /// The remaining time as a timeout for poll(2), at most `limit`: rounded up, so that it is 0 only when the deadline
  /// has expired. Whoever polls with it adds cancelEntry() to what it polls.
  int pollTimeout(std::chrono::milliseconds limit = std::chrono::milliseconds(INT_MAX)) const {
    if (isCancelled()) return 0;
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(timePoint_ - Clock::now());
    return static_cast<int>(std::clamp(remaining, std::chrono::milliseconds(0), limit).count());
  }
  /// Readable once the deadline is cancelled. poll(2) ignores it if that cannot happen.
  pollfd cancelEntry() const { return {cancelled_ != nullptr ? cancelled_->descriptor() : -1, POLLIN, 0}; }

  /// Returns after `duration` or when the deadline expires; possibly earlier, if a signal arrives.
  void sleep(std::chrono::milliseconds duration) const {
    pollfd entry = cancelEntry();
    ::poll(&entry, 1, pollTimeout(duration));
  }

  Deadline extendedBy(std::chrono::milliseconds duration) const {
    return Deadline(start_, timePoint_ + duration, cancelled_);
  }
  Deadline limitedTo(std::chrono::milliseconds duration) const {
    return Deadline(start_, std::min(timePoint_, after(duration).timePoint_), cancelled_);
  }
  /// Also expires when `cancelled` is set, which must outlive it.
  Deadline orWhenCancelled(const Event& cancelled) const { return Deadline(start_, timePoint_, &cancelled); }

 private:
  Deadline(Clock::time_point start, Clock::time_point timePoint, const Event* cancelled = nullptr)
      : start_(start), timePoint_(timePoint), cancelled_(cancelled) {}
  bool isCancelled() const { return cancelled_ != nullptr && cancelled_->isSet(); }

  Clock::time_point start_;
  Clock::time_point timePoint_;
  const Event* cancelled_;
};

}  // namespace mscclpp::detail
