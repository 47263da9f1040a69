// A point in time after which a blocking call gives up.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

namespace mscclpp::detail {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds duration) {
    // Far enough to be "never", near enough that arithmetic on it does not overflow.
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
    return Deadline(Clock::now() + std::clamp(duration, std::chrono::milliseconds(0), longest));
  }

  Clock::time_point when() const { return when_; }
  bool expired() const { return Clock::now() >= when_; }

  /// The time left as poll(2) takes it, at most `limit`: rounded up, so that it is 0 only when the time has passed.
  int pollTimeout(std::chrono::milliseconds limit = std::chrono::milliseconds(INT_MAX)) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), limit).count());
  }

  Deadline later(std::chrono::milliseconds duration) const { return Deadline(when_ + duration); }
  Deadline orSooner(std::chrono::milliseconds duration) const {
    return Deadline(std::min(when_, after(duration).when_));
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace mscclpp::detail
