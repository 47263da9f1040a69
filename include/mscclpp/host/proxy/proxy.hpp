// Proxy: a host thread that takes triggers from FIFOs and passes each to a handler.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/proxy/fifo.hpp"
#include "mscclpp/host/proxy/proxy_thread.hpp"

namespace mscclpp {

/// Whether the thread continues after a trigger.
enum class ProxyHandlerResult { Continue, Stop };

/// The origin of a trigger: the index of the proxy's FIFO, and the position in it.
struct TriggerPosition {
  int fifo;
  std::uint64_t position;
};

template <class Trigger>
using BasicProxyHandler = std::function<ProxyHandlerResult(const Trigger&, TriggerPosition)>;
/// MSCCL++-compatible overload.
using ProxyHandler = std::function<ProxyHandlerResult(ProxyTrigger)>;

struct ProxyOptions {
  ProxyThreadOptions thread = {};
  static constexpr int maxFifos = 4096;

  /// From 1 to maxFifos. With several FIFOs, blocks that push often contend less for one counter. Triggers of different
  /// FIFOs are not ordered.
  int fifos = 1;
  int fifoSize = DEFAULT_FIFO_SIZE;
  /// See FifoOptions.
  int popsPerTailUpdate = 1;
  /// Called by the thread after each round over the FIFOs; returns whether work is outstanding.
  std::function<bool()> progress = {};
};

namespace detail {

/// Whether it is an empty std::function, or a null pointer to a function.
template <class Handler>
bool isNullHandler(const Handler& handler) {
  if constexpr (std::is_pointer_v<Handler>) {
    return handler == nullptr;
  } else if constexpr (requires { handler.operator bool(); }) {
    return !handler;
  } else {
    return false;
  }
}

template <class Trigger, class Handler>
BasicProxyHandler<Trigger> asProxyHandler(Handler handler) {
  if (isNullHandler(handler)) throw Error("Proxy: the handler must not be null", ErrorCode::InvalidUsage);
  return [handler = std::move(handler)](const Trigger& trigger, [[maybe_unused]] TriggerPosition from) mutable {
    const auto call = [&]() -> decltype(auto) {
      if constexpr (std::invocable<Handler&, const Trigger&, TriggerPosition>) {
        return handler(trigger, from);
      } else {
        return handler(trigger);
      }
    };
    if constexpr (std::same_as<decltype(call()), void>) {
      call();
      return ProxyHandlerResult::Continue;
    } else {
      return call();
    }
  };
}

template <class Handler, class Trigger>
concept ProxyHandlerOf =
    std::invocable<Handler&, const Trigger&> || std::invocable<Handler&, const Trigger&, TriggerPosition>;

}  // namespace detail

/// A handler takes a trigger, and optionally a TriggerPosition, and returns a ProxyHandlerResult, or void, which means
/// Continue. It runs on the proxy's thread, one call at a time, in push order for each FIFO. A trigger is popped when
/// its handler has returned. An exception of a handler ends the thread and, shortly after, every wait of kernels on the
/// FIFOs; check() and stop() throw it. A null handler throws Error(InvalidUsage) at construction.
///
/// Kernels may push before start, and between stop and start: the triggers stay queued. The FIFOs live as long as any
/// caller holds a reference to them.
template <TriggerLayout Trigger>
class BasicProxy {
 public:
  using FifoType = BasicFifo<Trigger>;

  template <detail::ProxyHandlerOf<Trigger> Handler>
  explicit BasicProxy(Handler handler, int fifoSize = DEFAULT_FIFO_SIZE)
      : BasicProxy(std::move(handler), ProxyOptions{.fifoSize = fifoSize}) {}
  template <detail::ProxyHandlerOf<Trigger> Handler>
  BasicProxy(Handler handler, std::function<void()> threadInit, int fifoSize = DEFAULT_FIFO_SIZE)
      : BasicProxy(std::move(handler),
                   ProxyOptions{.thread = {.threadInit = std::move(threadInit)}, .fifoSize = fifoSize}) {}
  template <detail::ProxyHandlerOf<Trigger> Handler>
  BasicProxy(Handler handler, ProxyOptions options)
      : handler_(detail::asProxyHandler<Trigger>(std::move(handler))),
        progress_(std::move(options.progress)),
        trace_(options.thread.trace),
        monitor_(std::make_shared<WaitMonitor>(options.thread.device.type)),
        fifos_(makeFifos(options)),
        thread_(std::move(options.thread), [this] { return round(); }) {
    thread_.abortOnFailure(monitor_);
  }

  /// Starts the thread; no effect if it is running. With `blocking`, returns when the thread is running, and throws if
  /// its initialisation threw.
  void start(bool blocking = false) { thread_.start(blocking); }
  /// Handles what has been pushed, then ends and joins the thread. Throws what check() throws; Error(Timeout) if
  /// requests keep arriving.
  void stop() { thread_.stop(); }
  /// Like the destructor, for owners that share the proxy: stops it, and logs a failure that has not been thrown to any
  /// caller.
  void shutdown() noexcept { thread_.shutdown(); }
  /// Throws the exception of a handler, if there was one.
  void check() const { thread_.check(); }
  /// Whether the thread is running: false before start, and after a handler returned Stop or threw.
  bool running() const noexcept { return thread_.running(); }

  /// Also aborts the waits of `monitor` when a handler throws, or at once if one has: for kernels that wait for the
  /// effects of this proxy's work.
  void abortOnFailure(const std::shared_ptr<WaitMonitor>& monitor) { thread_.abortOnFailure(monitor); }

  int fifos() const noexcept { return static_cast<int>(fifos_.size()); }
  /// One of the FIFOs, for its device handle; only the proxy polls it.
  std::shared_ptr<FifoType> fifo(int index = 0) const {
    if (index < 0 || index >= fifos()) {
      throw Error("Proxy: there is no FIFO " + std::to_string(index) + " among " + std::to_string(fifos()),
                  ErrorCode::InvalidUsage);
    }
    return fifos_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<std::shared_ptr<FifoType>> makeFifos(const ProxyOptions& options) const {
    if (options.fifos < 1 || options.fifos > ProxyOptions::maxFifos) {
      throw Error("Proxy: the number of FIFOs must be from 1 to " + std::to_string(ProxyOptions::maxFifos) +
                      ", but it is " + std::to_string(options.fifos),
                  ErrorCode::InvalidUsage);
    }
    std::vector<std::shared_ptr<FifoType>> fifos;
    for (int i = 0; i < options.fifos; ++i) {
      fifos.push_back(std::make_shared<FifoType>(FifoOptions{.size = options.fifoSize,
                                                             .device = options.thread.device,
                                                             .popsPerTailUpdate = options.popsPerTailUpdate,
                                                             .monitor = monitor_}));
    }
    return fifos;
  }

  detail::ProxyRound round() {
    constexpr int maxTriggersPerFifo = 64;  // so that a busy FIFO does not starve the others
    bool worked = false;
    for (int index = 0; index < fifos(); ++index) {
      FifoType& fifo = *fifos_[static_cast<std::size_t>(index)];
      Trigger trigger;
      for (int n = 0; n < maxTriggersPerFifo && fifo.poll(trigger); ++n) {
        worked = true;
        const std::uint64_t position = fifo.tail();
        if (trace_) {
          thread_.wake();
          trace_->begin(TraceId::Trigger, position);
        }
        const auto result = handler_(trigger, {index, position});
        if (trace_) trace_->end(TraceId::Trigger);
        fifo.pop();
        if (result == ProxyHandlerResult::Stop) {
          for (const auto& each : fifos_) each->updateTail();
          return detail::ProxyRound::Ended;
        }
      }
    }
    const bool underWay = progress_ && progress_();
    return worked ? detail::ProxyRound::Worked : underWay ? detail::ProxyRound::Pending : detail::ProxyRound::Idle;
  }

  BasicProxyHandler<Trigger> handler_;
  std::function<bool()> progress_;
  std::shared_ptr<TraceTrack> trace_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::vector<std::shared_ptr<FifoType>> fifos_;
  detail::ProxyThread thread_;  // last: uses all of the above
};

using Proxy = BasicProxy<ProxyTrigger>;
using WideProxy = BasicProxy<WideTrigger>;

}  // namespace mscclpp
