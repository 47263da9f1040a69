// A barrier for emulated threads that turns a deadlock into an exception.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
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
    const std::lock_guard lock(mutex_);
    countArrival(threads);
  }

  /// Arrives and waits until all threads of the span have called wait() or arrive(). Orders the callers' memory
  /// accesses. Returns whether `vote` is true in any of the calls. Throws Deadlock after the timeout of the launch, and
  /// std::logic_error as arrive() does.
  bool wait(const ThreadSpan& threads, bool vote = false) {
    std::unique_lock lock(mutex_);
    const Uses before = uses_.load(std::memory_order_relaxed);
    anyVote_ = anyVote_ || vote;
    countArrival(threads);
    lock.unlock();
    if (const std::optional<bool> result = resultWhileYielding(before)) return *result;
    lock.lock();
    const bool ended = all_.wait_until(lock, std::chrono::steady_clock::now() + timeout_,
                                       [&] { return uses_.load(std::memory_order_relaxed).count != before.count; });
    if (!ended) {
      throw Deadlock("emulated threads did not all reach a sync(): " + std::to_string(arrived_) + " of " +
                     std::to_string(threads.count) + " arrived; every thread of a group must make the same calls");
    }
    return uses_.load(std::memory_order_relaxed).resultAfter(before);
  }

 private:
  /// A yield takes some microseconds where only the threads of a launch want the cores.
  static constexpr std::chrono::milliseconds slowYield{2};

  /// The uses that have ended, in one word, so that a thread that wakes up late, after others have used the barrier
  /// again, finds the result of its own.
  struct alignas(8) Uses {  // lock-free, also by clang
    std::uint32_t count;
    std::uint32_t results;  ///< bit i: of the (i+1)-th last use
    Uses next(bool result) const { return {count + 1, results << 1 | static_cast<std::uint32_t>(result)}; }
    /// The result of the first use that ended after `before`.
    bool resultAfter(const Uses& before) const { return (results >> (count - before.count - 1)) % 2 != 0; }
  };

  /// The result of the first use that ended after `before`, if it ends soon. Many waits end while the others of a warp
  /// or block get their turn, and to sleep and be woken takes longer. But where other processes compete for the cores,
  /// a yield lasts until they have used up their time: then this thread sleeps in its next waits, and tries again
  /// later.
  std::optional<bool> resultWhileYielding(const Uses& before) const {
    static thread_local int sleepingWaits = 0;
    if (sleepingWaits > 0) {
      --sleepingWaits;
      return {};
    }
    for (int yields = 0; yields < 4; ++yields) {
      const Uses now = uses_.load(std::memory_order_acquire);
      if (now.count != before.count) return now.resultAfter(before);
      const auto start = std::chrono::steady_clock::now();
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - start <= slowYield) continue;
      sleepingWaits = 200;
      return {};
    }
    return {};
  }

  /// Called with the lock held. The last to arrive wakes the others.
  void countArrival(const ThreadSpan& threads) {
    if (arrived_ == 0) threads_ = threads;
    if (threads_ != threads) {
      throw std::logic_error("a barrier is in use by " + describe(threads_) + " and by " + describe(threads) +
                             " of a block: groups of threads that sync at the same time need different BarrierIds");
    }
    if (++arrived_ < threads.count) return;
    arrived_ = 0;
    uses_.store(uses_.load(std::memory_order_relaxed).next(std::exchange(anyVote_, false)), std::memory_order_release);
    all_.notify_all();
  }

  static std::string describe(const ThreadSpan& threads) {
    return "threads " + std::to_string(threads.first) + " to " + std::to_string(threads.first + threads.count - 1);
  }

  std::mutex mutex_;
  std::condition_variable all_;
  std::atomic<Uses> uses_{Uses{0, 0}};
  ThreadSpan threads_{0, 0};  ///< the current users
  int arrived_ = 0;
  bool anyVote_ = false;  ///< of those who have arrived
  std::chrono::seconds timeout_;
};

}  // namespace mscclpp::emulation
