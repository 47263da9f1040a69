// A point in time after which a blocking call gives up, or earlier when somebody says so.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <string>

namespace mscclpp::detail {

/// For messages: "0.3 s".
inline std::string secondsText(std::chrono::steady_clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds duration) {
    // Far enough to be "never", near enough that arithmetic on it does not overflow.
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
    const auto now = Clock::now();
    return Deadline(now, now + std::clamp(duration, std::chrono::milliseconds(0), longest));
  }

  Clock::time_point when() const { return when_; }
  /// How long ago the call began whose deadline this is; for messages.
  std::string passed() const { return secondsText(Clock::now() - start_); }
  bool expired() const { return isCancelled() || Clock::now() >= when_; }

  /// The time left as poll(2) takes it, at most `limit`: rounded up, so that it is 0 only when the deadline has expired.
  /// A deadline that can be cancelled is to be looked at again after a glance: poll may return before it expires.
  int pollTimeout(std::chrono::milliseconds limit = std::chrono::milliseconds(INT_MAX)) const {
    if (isCancelled()) return 0;
    if (cancelled_ != nullptr) limit = std::min(limit, glance);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), limit).count());
  }

  Deadline later(std::chrono::milliseconds duration) const { return Deadline(start_, when_ + duration, cancelled_); }
  Deadline orSooner(std::chrono::milliseconds duration) const {
    return Deadline(start_, std::min(when_, after(duration).when_), cancelled_);
  }
  /// Expires too when `cancelled` becomes true, which must outlive it.
  Deadline orWhen(const std::atomic<bool>& cancelled) const { return Deadline(start_, when_, &cancelled); }

 private:
  static constexpr std::chrono::milliseconds glance{20};

  Deadline(Clock::time_point start, Clock::time_point when, const std::atomic<bool>* cancelled = nullptr)
      : start_(start), when_(when), cancelled_(cancelled) {}
  bool isCancelled() const { return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed); }

  Clock::time_point start_;
  Clock::time_point when_;
  const std::atomic<bool>* cancelled_;
};

}  // namespace mscclpp::detail
