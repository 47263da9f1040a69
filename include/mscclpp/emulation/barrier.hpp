// A barrier for emulated threads that turns a deadlock into an exception.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

namespace mscclpp::emulation {

/// Thrown when an emulated thread times out waiting for others of its block or warp, because they took another path.
class Deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Barrier {
 public:
  explicit Barrier(int threads, std::chrono::seconds timeout) : threads_(threads), timeout_(timeout) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// Arrives without waiting.
  void arrive() {
    std::unique_lock lock(mutex_);
    if (countArrival()) {
      lock.unlock();
      all_.notify_all();
    }
  }

  /// Arrives and waits until `threads` calls of wait() or arrive() have been made. Orders the callers' memory accesses.
  /// Throws Deadlock after the timeout of the launch.
  void wait() {
    std::unique_lock lock(mutex_);
    const auto generation = generation_;
    if (countArrival()) {
      lock.unlock();
      all_.notify_all();
      return;
    }
    if (!all_.wait_until(lock, std::chrono::steady_clock::now() + timeout_,
                         [&] { return generation_ != generation; })) {
      throw Deadlock("emulated threads did not all reach a sync(): " + std::to_string(arrived_) + " of " +
                     std::to_string(threads_) + " arrived; every thread of a group must make the same calls");
    }
  }

 private:
  /// Whether the caller is the last to arrive.
  bool countArrival() {
    if (++arrived_ < threads_) return false;
    arrived_ = 0;
    ++generation_;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable all_;
  int threads_;
  int arrived_ = 0;
  unsigned long generation_ = 0;
  std::chrono::seconds timeout_;
};

}  // namespace mscclpp::emulation
