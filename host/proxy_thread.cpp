#include "mscclpp/host/proxy_thread.hpp"

#include <string>

#include "gpu_backend.hpp"
#include "mscclpp/arch/pause.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"
#include "mscclpp/host/numa.hpp"
#include "service_thread.hpp"

namespace mscclpp::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds nap{50};

/// What the thread does when there is nothing to do.
class Idling {
 public:
  explicit Idling(const ProxyThreadOptions& options)
      : sharesCore_(options.device.type == DeviceType::CPU), sleepAfter_(options.sleepAfter) {}

  void worked() { rounds_ = 0; }

  template <class FallAsleep>
  void pause(const FallAsleep& fallAsleep) {
    ++rounds_;
    if (sleepAfter_) {
      // The clock is asked rarely, as a look at it costs as much as a look at a FIFO.
      constexpr unsigned roundsPerClock = 64;
      if (rounds_ == 1) {
        since_ = Clock::now();
        asleep_ = false;
      }
      if (!asleep_ && rounds_ % roundsPerClock == 0) asleep_ = Clock::now() - since_ >= *sleepAfter_;
      if (asleep_) {
        fallAsleep();
        std::this_thread::sleep_for(nap);
        return;
      }
    }
    arch::pauseAfterFailure(sharesCore_ ? rounds_ : 1);
  }

 private:
  bool sharesCore_;
  std::optional<std::chrono::microseconds> sleepAfter_;
  unsigned rounds_ = 0;
  bool asleep_ = false;
  Clock::time_point since_;
};

}  // namespace

ProxyThread::ProxyThread(ProxyThreadOptions options, std::function<ProxyRound()> round)
    : options_(std::move(options)), round_(std::move(round)) {
  if (options_.device.type == DeviceType::GPU && options_.device.id < 0) options_.device.id = currentGpu();
  if (options_.place == ProxyPlace::NearDevice && options_.device.type != DeviceType::GPU) {
    throw Error("Proxy: ProxyPlace::NearDevice needs a GPU to be near", ErrorCode::InvalidUsage);
  }
}

void ProxyThread::end() noexcept {
  stopAndJoin();
  const std::lock_guard lock(failureMutex_);
  if (!failure_ || told_) return;
  told_ = true;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    logMessage(LogLevel::Error, LogSubsystem::Exec, "a proxy ended with: ", error.what());
  } catch (...) {
    logMessage(LogLevel::Error, LogSubsystem::Exec, "a proxy ended with an unknown exception");
  }
}

void ProxyThread::start(bool blocking) {
  if (isThisThread()) return;  // and waiting for whoever stops it would be for ever
  {
    const std::lock_guard lock(lifecycle_);
    if (stop_ || !running()) join();  // it has ended, or been told to by itself
    {
      const std::lock_guard failureLock(failureMutex_);
      if (failure_) {
        throw Error("Proxy: it has failed before, and requests may be lost; make a new one", ErrorCode::InvalidUsage);
      }
    }
    if (!thread_.joinable()) {
      stop_ = false;
      started_ = false;
      running_ = true;
      try {
        thread_ = startServiceThread("mscclpp-proxy", [this] { run(); });
      } catch (...) {
        running_ = false;
        throw;
      }
    }
  }
  if (!blocking) return;
  while (running() && !started_.load(std::memory_order_acquire)) std::this_thread::sleep_for(nap);
  check();
}

void ProxyThread::stop() {
  stopAndJoin();
  if (!isThisThread()) check();
}

void ProxyThread::stopAndJoin() {
  if (isThisThread()) {
    stop_ = true;
    return;
  }
  const std::lock_guard lock(lifecycle_);
  stop_ = true;  // under the lock: a start under way would take it back, and the join never end
  join();
}

void ProxyThread::join() {
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread();
}

void ProxyThread::check() const {
  const std::lock_guard lock(failureMutex_);
  if (!failure_) return;
  told_ = true;
  std::rethrow_exception(failure_);
}

void ProxyThread::endOnFailure(const std::shared_ptr<WaitMonitor>& monitor) {
  if (!monitor) return;
  const std::lock_guard lock(failureMutex_);
  if (failure_) monitor->abort();
  std::erase_if(monitors_, [](const auto& each) { return each.expired(); });
  monitors_.push_back(monitor);
}

void ProxyThread::fail() noexcept {
  const std::lock_guard lock(failureMutex_);
  failure_ = std::current_exception();
  for (const auto& each : monitors_) {
    if (const auto monitor = each.lock()) monitor->abort();
  }
}

void ProxyThread::run() {
  threadId_ = std::this_thread::get_id();
  try {
    prepare();
    started_.store(true, std::memory_order_release);
    work();
    wake();
  } catch (...) {
    fail();
  }
  threadId_ = std::thread::id();
  running_.store(false, std::memory_order_release);
}

void ProxyThread::fallAsleep() {
  if (!options_.trace || sleepIsRecorded_) return;
  options_.trace->begin(TraceId::Asleep);
  sleepIsRecorded_ = true;
}

void ProxyThread::wake() {
  if (!sleepIsRecorded_) return;
  options_.trace->end(TraceId::Asleep);
  sleepIsRecorded_ = false;
}

void ProxyThread::prepare() {
  if (options_.device.type == DeviceType::GPU) serveGpu(options_.device.id);
  if (options_.place == ProxyPlace::NearDevice) {
    const int node = getDeviceNumaNode(options_.device.id);
    // A machine with one node has nothing to choose from.
    if (node >= 0) numaBind(node);
  }
  if (options_.threadInit) options_.threadInit();
}

void ProxyThread::work() {
  Idling idling(options_);
  std::optional<Clock::time_point> deadline;
  while (true) {
    // Before the round: what had been pushed when the stop was asked for is found by it.
    const bool stopping = stop_.load(std::memory_order_acquire);
    const ProxyRound result = round_();
    if (result == ProxyRound::Ended || (stopping && result == ProxyRound::Idle)) return;
    if (stopping) {
      if (!deadline) deadline = Clock::now() + options_.stopTimeout;
      if (Clock::now() >= *deadline) {
        throw Error("Proxy: " + std::to_string(options_.stopTimeout.count()) +
                        " ms after it was told to stop there were still requests, or copies under way; let the kernels "
                        "that push end first",
                    ErrorCode::Timeout);
      }
    }
    if (result == ProxyRound::Worked) {
      idling.worked();
    } else if (result == ProxyRound::Idle || options_.device.type == DeviceType::CPU) {
      idling.pause([this] { fallAsleep(); });
    }
  }
}

}  // namespace mscclpp::detail
