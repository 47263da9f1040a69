// A point in time after which a blocking call gives up, or earlier when somebody says so.
#pragma once

#include <algorithm>
#include <atomic>
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
  bool expired() const { return isCancelled() || Clock::now() >= when_; }

  /// The time left as poll(2) takes it, at most `limit`: rounded up, so that it is 0 only when the deadline has expired.
  /// A deadline that can be cancelled is to be looked at again after a glance: poll may return before it expires.
  int pollTimeout(std::chrono::milliseconds limit = std::chrono::milliseconds(INT_MAX)) const {
    if (isCancelled()) return 0;
    if (cancelled_ != nullptr) limit = std::min(limit, glance);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), limit).count());
  }

  Deadline later(std::chrono::milliseconds duration) const { return Deadline(when_ + duration, cancelled_); }
  Deadline orSooner(std::chrono::milliseconds duration) const {
    return Deadline(std::min(when_, after(duration).when_), cancelled_);
  }
  /// Expires too when `cancelled` becomes true, which must outlive it.
  Deadline orWhen(const std::atomic<bool>& cancelled) const { return Deadline(when_, &cancelled); }

 private:
  static constexpr std::chrono::milliseconds glance{20};

  explicit Deadline(Clock::time_point when, const std::atomic<bool>* cancelled = nullptr)
      : when_(when), cancelled_(cancelled) {}
  bool isCancelled() const { return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed); }

  Clock::time_point when_;
  const std::atomic<bool>* cancelled_;
};

}  // namespace mscclpp::detail
