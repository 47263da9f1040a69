// The thread behind a proxy: starts and stops any number of times, idles in the way it is told, and hands its failure to its owner.
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

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/trace.hpp"
#include "mscclpp/host/wait_monitor.hpp"

namespace mscclpp {

/// On which CPUs the thread of a proxy runs.
enum class ProxyPlace {
  Anywhere,    ///< where the thread that starts it may
  NearDevice,  ///< on the GPU's NUMA node
};

/// How the thread of a proxy works. It takes no signals.
struct ProxyThreadOptions {
  /// The GPU that it makes current before anything else; or the CPU, where it lets other threads run as soon as it idles.
  Device device = DeviceType::GPU;
  ProxyPlace place = ProxyPlace::Anywhere;
  /// Called by the thread when it starts, after it has chosen its GPU and place.
  std::function<void()> threadInit = {};
  /// After so long without work it naps for 50 us between two looks, which frees its core and adds as much to the latency of the next trigger. Never if
  /// empty. On a CPU device idling gives the core away in any case.
  std::optional<std::chrono::microseconds> sleepAfter = {};
  /// Where the thread records its handlers at work and its sleep, and a proxy service each request with its bytes and semaphore; null: nowhere.
  std::shared_ptr<TraceTrack> trace = nullptr;
  /// How long a stop may take to finish what had been asked for.
  std::chrono::milliseconds stopTimeout{5000};
};

namespace detail {

/// What one round of work came to.
enum class ProxyRound {
  Worked,   ///< there may be more
  Pending,  ///< nothing new; something is under way
  Idle,     ///< nothing at all
  Ended,    ///< the thread is to end
};

class ProxyThread {
 public:
  /// `round` is called again and again by the thread; an exception ends it.
  ProxyThread(ProxyThreadOptions options, std::function<ProxyRound()> round);
  ~ProxyThread() { end(); }
  ProxyThread(const ProxyThread&) = delete;
  ProxyThread& operator=(const ProxyThread&) = delete;

  /// No effect on a thread that runs; one that has told itself to stop ends first. With `blocking`, returns when it works, and throws what its start threw.
  void start(bool blocking);
  /// Has the thread go on until a round is idle, joins it, and throws what check() throws. From the thread itself: only the request.
  void stop();
  /// The same for good: what went wrong is logged if nobody has been told.
  void end() noexcept;
  /// Throws what ended the thread, if something did.
  void check() const;
  /// Ends the waits of a monitor when the thread fails, or now if it has.
  void endOnFailure(const std::shared_ptr<WaitMonitor>& monitor);
  /// For `round`, before it records something: the thread is not asleep any more.
  void wake();
  bool running() const noexcept { return running_.load(std::memory_order_acquire); }

 private:
  bool isThisThread() const noexcept { return threadId_.load() == std::this_thread::get_id(); }
  void run();
  void prepare();
  void work();
  void fallAsleep();
  void stopAndJoin();
  void join();
  void fail() noexcept;

  ProxyThreadOptions options_;
  std::function<ProxyRound()> round_;
  std::mutex lifecycle_;  // held by whoever starts or stops
  std::thread thread_;
  std::atomic<std::thread::id> threadId_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> running_ = false;
  std::atomic<bool> started_ = false;
  mutable std::mutex failureMutex_;
  std::exception_ptr failure_;
  mutable bool told_ = false;  // whether somebody has caught it
  std::vector<std::weak_ptr<WaitMonitor>> monitors_;
  bool sleepIsRecorded_ = false;  // of the thread alone
};

}  // namespace detail
}  // namespace mscclpp
