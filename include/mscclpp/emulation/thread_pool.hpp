// The threads that run emulated launches, one launch after the other.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace mscclpp::emulation::detail {

/// What a launch does in each of its threads: function(context, i) in thread i. Must not throw.
struct ThreadTask {
  void (*function)(const void* context, int thread);
  const void* context;
};

/// Threads that are kept between launches: to start one takes longer than most launches, a millisecond under
/// ThreadSanitizer. One object belongs to one launching thread.
class ThreadPool {
 public:
  ThreadPool() = default;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { abandonIfForked(); }

  /// The pool of the calling thread, whose threads end when it does.
  static ThreadPool& ofThisThread() {
    thread_local ThreadPool pool;
    return pool;
  }

  /// Runs the task in `count` threads, all concurrently, and returns when each has returned from it. Orders memory
  /// accesses as starting and joining threads does. Throws std::system_error if a thread cannot be started; then none
  /// has run the task.
  void run(int count, const ThreadTask& task) {
    abandonIfForked();
    while (workers_.size() < static_cast<std::size_t>(count)) {
      workers_.push_back(std::make_unique<Worker>(*this, static_cast<int>(workers_.size())));
    }
    running_ = count;
    for (int thread = 0; thread < count; ++thread) workers_[static_cast<std::size_t>(thread)]->start(task);
    std::unique_lock lock(mutex_);
    allEnded_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  class Worker {
   public:
    Worker(ThreadPool& pool, int index) : thread_([this, &pool, index] { runTasks(pool, index); }) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
      start({});
      thread_.join();
    }
    /// Without a function: the last.
    void start(const ThreadTask& task) {
      {
        const std::lock_guard lock(mutex_);
        task_ = task;
      }
      started_.notify_one();
    }

   private:
    void runTasks(ThreadPool& pool, int index) {
      for (ThreadTask task = next(); task.function != nullptr; task = next()) {
        task.function(task.context, index);
        pool.end();
      }
    }
    ThreadTask next() {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [this] { return task_.has_value(); });
      const ThreadTask task = *task_;
      task_.reset();
      return task;
    }

    std::mutex mutex_;
    std::condition_variable started_;
    std::optional<ThreadTask> task_;
    std::thread thread_;  // the last member: it uses the others
  };

  void end() {
    // Notifies under the lock: when run() returns, the pool may end.
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) allEnded_.notify_one();
  }

  /// A forked child has the objects, but none of the threads.
  void abandonIfForked() {
    if (process_ == ::getpid()) return;
    for (auto& worker : workers_) static_cast<void>(worker.release());
    workers_.clear();
    process_ = ::getpid();
  }

  pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable allEnded_;
  int running_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace mscclpp::emulation::detail
