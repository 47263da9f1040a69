// The thread behind a proxy: can be started and stopped repeatedly, idles as configured, and reports its failure to its
// owner.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/trace/trace.hpp"

namespace mscclpp {

/// The CPUs on which the thread of a proxy runs.
enum class ProxyAffinity {
  Inherit,         ///< those of the thread that starts it
  DeviceNumaNode,  ///< those of the GPU's NUMA node
};

/// Options of a proxy's thread. The thread blocks all signals.
struct ProxyThreadOptions {
  /// The GPU that the thread makes current first; or the CPU, where it yields its core as soon as it idles.
  Device device = DeviceType::GPU;
  ProxyAffinity affinity = ProxyAffinity::Inherit;
  /// Called by the thread when it starts, after it has set its GPU and CPU affinity.
  std::function<void()> threadInit = {};
  /// After this time without work it sleeps for 50 us between two polls, which frees its core and adds up to that to
  /// the latency of the next trigger. Never if empty. On a CPU device it yields its core when idle in any case.
  std::optional<std::chrono::microseconds> sleepAfter = {};
  /// Records the thread's handlers and sleeps and, in a proxy service, each request with its size and semaphore; null:
  /// no trace.
  std::shared_ptr<TraceTrack> trace = nullptr;
  /// Time limit for a stop to finish outstanding requests.
  std::chrono::milliseconds stopTimeout{5000};
};

namespace detail {

class OwnerProcess;

/// The result of one round.
enum class ProxyRound {
  Worked,   ///< there may be more work
  Pending,  ///< no new work; some is outstanding
  Idle,     ///< no work at all
  Ended,    ///< the thread ends
};

class ProxyThread {
 public:
  /// The thread calls `round` in a loop; an exception ends it.
  ProxyThread(ProxyThreadOptions options, std::function<ProxyRound()> round);
  ~ProxyThread() { shutdown(); }
  ProxyThread(const ProxyThread&) = delete;
  ProxyThread& operator=(const ProxyThread&) = delete;

  /// No effect if the thread is running; one that has requested its own stop ends first. With `blocking`, returns when
  /// the thread is running, and throws if its initialisation threw.
  void start(bool blocking);
  /// Lets the thread run until a round is idle, joins it, and throws what check() throws. On the thread itself it only
  /// requests the stop.
  void stop();
  /// Stops for the last time and logs an error that has not been thrown to a caller. No effect in a forked child, which
  /// does not have the thread.
  void shutdown() noexcept;
  /// Throws the error that ended the thread, if there was one.
  void check() const;
  /// Aborts the waits of `monitor` when the thread fails, or at once if it has, with the error as the reason.
  void abortOnFailure(const std::shared_ptr<WaitMonitor>& monitor);
  /// Called by `round` before it records an event: ends the recorded sleep.
  void wake();
  bool running() const noexcept { return running_.load(std::memory_order_acquire); }

 private:
  bool isThisThread() const noexcept { return threadId_.load() == std::this_thread::get_id(); }
  void run();
  void prepare();
  void work();
  void enterSleep();
  void stopAndJoin();
  void join();
  void fail() noexcept;

  ProxyThreadOptions options_;
  std::function<ProxyRound()> round_;
  std::mutex lifecycleMutex_;  // held by a thread that starts or stops it
  std::shared_ptr<const OwnerProcess> owner_;
  std::thread thread_;
  std::atomic<std::thread::id> threadId_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> running_ = false;
  std::atomic<bool> started_ = false;
  mutable std::mutex failureMutex_;
  std::exception_ptr failure_;
  mutable bool failureReported_ = false;  // whether it has been thrown to a caller
  std::vector<std::weak_ptr<WaitMonitor>> monitors_;
  bool sleepIsRecorded_ = false;  // used by the thread only
};

}  // namespace detail
}  // namespace mscclpp
