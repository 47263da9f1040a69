// How long this machine keeps threads waiting that could run: what a busy one adds to any time that is measured on it.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace mscclpp::faults {

/// From its construction on a thread takes naps, and adds up by how much they are too long.
class Stalls {
 public:
  Stalls()
      : thread_([this] {
          using Clock = std::chrono::steady_clock;
          while (!ends_) {
            const auto wake = Clock::now() + nap;
            std::this_thread::sleep_until(wake);
            const auto late = Clock::now() - wake;
            if (late > usual) sum_ += std::chrono::duration_cast<std::chrono::microseconds>(late).count();
          }
        }) {}
  ~Stalls() {
    ends_ = true;
    thread_.join();
  }
  Stalls(const Stalls&) = delete;
  Stalls& operator=(const Stalls&) = delete;

  double seconds() const { return static_cast<double>(sum_.load()) * 1e-6; }

 private:
  static constexpr std::chrono::milliseconds nap{5};
  static constexpr std::chrono::milliseconds usual{1};
  std::atomic<bool> ends_ = false;
  std::atomic<long> sum_ = 0;  // microseconds
  std::thread thread_;
};

}  // namespace mscclpp::faults
