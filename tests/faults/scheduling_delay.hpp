// Measures the scheduling delay of runnable threads, which a busy machine adds to every measured time.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace mscclpp::faults {

/// A thread that sleeps repeatedly, and sums by how much each sleep was too long.
class SchedulingDelay {
 public:
  SchedulingDelay()
      : thread_([this] {
          using Clock = std::chrono::steady_clock;
          while (!ends_) {
            const auto wake = Clock::now() + sleepTime;
            std::this_thread::sleep_until(wake);
            const auto late = Clock::now() - wake;
            if (late > tolerance) sum_ += std::chrono::duration_cast<std::chrono::microseconds>(late).count();
          }
        }) {}
  ~SchedulingDelay() {
    ends_ = true;
    thread_.join();
  }
  SchedulingDelay(const SchedulingDelay&) = delete;
  SchedulingDelay& operator=(const SchedulingDelay&) = delete;

  double seconds() const { return static_cast<double>(sum_.load()) * 1e-6; }

 private:
  static constexpr std::chrono::milliseconds sleepTime{5};
  static constexpr std::chrono::milliseconds tolerance{1};
  std::atomic<bool> ends_ = false;
  std::atomic<long> sum_ = 0;  // microseconds
  std::thread thread_;
};

}  // namespace mscclpp::faults
