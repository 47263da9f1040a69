// A barrier for emulated threads that turns a deadlock into an exception.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

namespace mscclpp::emulation {

/// An emulated thread waited too long for others of its block or warp: some of them took another path.
class Deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Barrier {
 public:
  explicit Barrier(int threads, std::chrono::seconds patience) : threads_(threads), patience_(patience) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// Counts the caller in, without waiting.
  void arrive() {
    std::unique_lock lock(mutex_);
    if (countIn()) {
      lock.unlock();
      all_.notify_all();
    }
  }

  /// Waits for `threads` calls, of this or of arrive(). Orders the callers' memory accesses. Throws Deadlock after the patience of the launch.
  void wait() {
    std::unique_lock lock(mutex_);
    const auto generation = generation_;
    if (countIn()) {
      lock.unlock();
      all_.notify_all();
      return;
    }
    if (!all_.wait_until(lock, std::chrono::steady_clock::now() + patience_,
                         [&] { return generation_ != generation; })) {
      throw Deadlock("emulated threads did not all reach a sync(): " + std::to_string(arrived_) + " of " +
                     std::to_string(threads_) + " came; every thread of a group must make the same calls");
    }
  }

 private:
  /// Whether the caller was the last.
  bool countIn() {
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
  std::chrono::seconds patience_;
};

}  // namespace mscclpp::emulation
