#include "mscclpp/host/proxy/proxy_thread.hpp"

#include <new>
#include <string>

#include "host/base/error_message.hpp"
#include "host/base/process_identity.hpp"
#include "host/base/service_thread.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/arch/backoff.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/cuda/numa.hpp"

namespace mscclpp::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds sleepInterval{50};

std::string describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return messageOf(error);
  } catch (...) {
    return "something that is not a std::exception was thrown";
  }
}

void abortWaits(WaitMonitor& monitor, const std::exception_ptr& failure) noexcept {
  try {
    monitor.abort("the proxy ended: " + describe(failure));
  } catch (const std::bad_alloc&) {
    monitor.abort();
  }
}

/// What the thread does when idle.
class BackoffPolicy {
 public:
  explicit BackoffPolicy(const ProxyThreadOptions& options)
      : yieldsCore_(options.device.type == DeviceType::CPU), sleepAfter_(options.sleepAfter) {}

  void reset() { rounds_ = 0; }

  template <class EnterSleep>
  void pause(const EnterSleep& enterSleep) {
    ++rounds_;
    if (sleepAfter_) {
      // The clock is read rarely: reading it costs as much as polling a FIFO.
      constexpr unsigned roundsPerClock = 64;
      if (rounds_ == 1) {
        since_ = Clock::now();
        asleep_ = false;
      }
      if (!asleep_ && rounds_ % roundsPerClock == 0) asleep_ = Clock::now() - since_ >= *sleepAfter_;
      if (asleep_) {
        enterSleep();
        std::this_thread::sleep_for(sleepInterval);
        return;
      }
    }
    arch::backoff(yieldsCore_ ? rounds_ : 1);
  }

 private:
  bool yieldsCore_;
  std::optional<std::chrono::microseconds> sleepAfter_;
  unsigned rounds_ = 0;
  bool asleep_ = false;
  Clock::time_point since_;
};

}  // namespace

ProxyThread::ProxyThread(ProxyThreadOptions options, std::function<ProxyRound()> round)
    : options_(std::move(options)), round_(std::move(round)), owner_(std::make_shared<OwnerProcess>()) {
  if (options_.device.type == DeviceType::GPU && options_.device.id < 0) options_.device.id = currentGpu();
  if (options_.affinity == ProxyAffinity::DeviceNumaNode && options_.device.type != DeviceType::GPU) {
    throw Error("Proxy: ProxyAffinity::DeviceNumaNode needs a GPU to be near", ErrorCode::InvalidUsage);
  }
}

void ProxyThread::shutdown() noexcept {
  if (!owner_->isCurrent()) {  // the locks may have been held at the fork
    if (thread_.joinable()) thread_.detach();
    return;
  }
  stopAndJoin();
  const std::lock_guard lock(failureMutex_);
  if (!failure_ || failureReported_) return;
  failureReported_ = true;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    logMessage(LogLevel::Error, LogSubsystem::Exec, "the thread of a proxy ended with an error: ", error.what());
  } catch (...) {
    logMessage(LogLevel::Error, LogSubsystem::Exec,
               "the thread of a proxy ended with something that is not a std::exception");
  }
}

void ProxyThread::start(bool blocking) {
  if (isThisThread()) return;  // a thread cannot join itself
  {
    const std::lock_guard lock(lifecycleMutex_);
    if (stop_ || !running()) join();  // it has ended, or has requested its own stop
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
  while (running() && !started_.load(std::memory_order_acquire)) std::this_thread::sleep_for(sleepInterval);
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
  const std::lock_guard lock(lifecycleMutex_);
  stop_ = true;  // under the lock: a concurrent start would reset it, and the join would never return
  join();
}

void ProxyThread::join() {
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread();
}

void ProxyThread::check() const {
  const std::lock_guard lock(failureMutex_);
  if (!failure_) return;
  failureReported_ = true;
  std::rethrow_exception(failure_);
}

void ProxyThread::abortOnFailure(const std::shared_ptr<WaitMonitor>& monitor) {
  if (!monitor) return;
  const std::lock_guard lock(failureMutex_);
  if (failure_) abortWaits(*monitor, failure_);
  std::erase_if(monitors_, [](const auto& each) { return each.expired(); });
  monitors_.push_back(monitor);
}

void ProxyThread::fail() noexcept {
  const std::lock_guard lock(failureMutex_);
  failure_ = std::current_exception();
  for (const auto& each : monitors_) {
    if (const auto monitor = each.lock()) abortWaits(*monitor, failure_);
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

void ProxyThread::enterSleep() {
  if (!options_.trace || sleepIsRecorded_) return;
  options_.trace->begin(TraceId::Idle);
  sleepIsRecorded_ = true;
}

void ProxyThread::wake() {
  if (!sleepIsRecorded_) return;
  options_.trace->end(TraceId::Idle);
  sleepIsRecorded_ = false;
}

void ProxyThread::prepare() {
  if (options_.device.type == DeviceType::GPU) initGpuThread(options_.device.id);
  if (options_.affinity == ProxyAffinity::DeviceNumaNode) {
    const int node = getDeviceNumaNode(options_.device.id);
    // With a single node there is nothing to choose.
    if (node >= 0) numaBind(node);
  }
  if (options_.threadInit) options_.threadInit();
}

void ProxyThread::work() {
  BackoffPolicy backoff(options_);
  std::optional<Clock::time_point> deadline;
  while (true) {
    // Read before the round, so that the round finds everything pushed before the stop request.
    const bool stopping = stop_.load(std::memory_order_acquire);
    const ProxyRound result = round_();
    if (result == ProxyRound::Ended || (stopping && result == ProxyRound::Idle)) return;
    if (stopping) {
      if (!deadline) deadline = Clock::now() + options_.stopTimeout;
      if (Clock::now() >= *deadline) {
        throw Error("Proxy: " + std::to_string(options_.stopTimeout.count()) +
                        " ms after the stop there were still requests or outstanding copies; let the kernels "
                        "that push end first",
                    ErrorCode::Timeout);
      }
    }
    if (result == ProxyRound::Worked) {
      backoff.reset();
    } else if (result == ProxyRound::Idle || options_.device.type == DeviceType::CPU) {
      backoff.pause([this] { enterSleep(); });
    }
  }
}

}  // namespace mscclpp::detail
