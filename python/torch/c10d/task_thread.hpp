// A thread that performs tasks in the order in which they were posted.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace mscclpp::torch_c10d {

/// It starts with the first task. Any thread may call the functions; tasks do not throw.
class TaskThread {
 public:
  TaskThread() = default;
  /// Performs what was posted, and ends.
  ~TaskThread() {
    {
      const std::lock_guard lock(mutex_);
      isEnding_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }

  /// Whether all tasks have ended by then.
  template <class TimePoint>
  bool waitUntilIdle(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return tasks_.empty() && !isRunning_; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty() || isEnding_; });
      if (tasks_.empty()) return;
      {
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        isRunning_ = true;
        lock.unlock();
        task();
      }  // what the task holds is released before the thread is idle, and without the lock
      lock.lock();
      isRunning_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool isRunning_ = false;
  bool isEnding_ = false;
  std::thread thread_;
};

}  // namespace mscclpp::torch_c10d
