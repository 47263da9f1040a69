// A barrier for emulated threads that turns a deadlock into an exception.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace mscclpp::emulation {

/// Thrown when an emulated thread times out waiting for others of its block or warp, because they took another path.
class Deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Consecutive threads of a block.
struct ThreadSpan {
  int first;
  int count;
  friend bool operator==(const ThreadSpan&, const ThreadSpan&) = default;
};

/// A barrier that different spans of threads may use one after the other, as they may a hardware barrier.
class Barrier {
 public:
  explicit Barrier(std::chrono::seconds timeout) : timeout_(timeout) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// Arrives without waiting. threads: all who take part, the caller included. Throws std::logic_error if other threads
  /// have arrived for another span.
  void arrive(const ThreadSpan& threads) {
    std::unique_lock lock(mutex_);
    if (countArrival(threads)) {
      lock.unlock();
      all_.notify_all();
    }
  }

  /// Arrives and waits until all threads of the span have called wait() or arrive(). Orders the callers' memory
  /// accesses. Returns whether `vote` is true in any of the calls. Throws Deadlock after the timeout of the launch, and
  /// std::logic_error as arrive() does.
  bool wait(const ThreadSpan& threads, bool vote = false) {
    std::unique_lock lock(mutex_);
    const auto generation = generation_;
    anyVote_ = anyVote_ || vote;
    if (countArrival(threads)) {
      const bool result = result_;
      lock.unlock();
      all_.notify_all();
      return result;
    }
    if (!all_.wait_until(lock, std::chrono::steady_clock::now() + timeout_,
                         [&] { return generation_ != generation; })) {
      throw Deadlock("emulated threads did not all reach a sync(): " + std::to_string(arrived_) + " of " +
                     std::to_string(threads.count) + " arrived; every thread of a group must make the same calls");
    }
    return result_;  // the next use of the barrier ends only after this thread has arrived again
  }

 private:
  /// Whether the caller is the last to arrive.
  bool countArrival(const ThreadSpan& threads) {
    if (arrived_ == 0) threads_ = threads;
    if (threads_ != threads) {
      throw std::logic_error("a barrier is in use by " + describe(threads_) + " and by " + describe(threads) +
                             " of a block: groups of threads that sync at the same time need different BarrierIds");
    }
    if (++arrived_ < threads.count) return false;
    arrived_ = 0;
    result_ = std::exchange(anyVote_, false);
    ++generation_;
    return true;
  }

  static std::string describe(const ThreadSpan& threads) {
    return "threads " + std::to_string(threads.first) + " to " + std::to_string(threads.first + threads.count - 1);
  }

  std::mutex mutex_;
  std::condition_variable all_;
  ThreadSpan threads_{0, 0};  ///< the current users
  int arrived_ = 0;
  bool anyVote_ = false;  ///< of those who have arrived
  bool result_ = false;   ///< of the last generation
  unsigned long generation_ = 0;
  std::chrono::seconds timeout_;
};

}  // namespace mscclpp::emulation
