// Proxy: a host thread that takes triggers out of FIFOs and hands each to a handler.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/fifo.hpp"
#include "mscclpp/host/proxy_thread.hpp"
#include "mscclpp/host/wait_monitor.hpp"

namespace mscclpp {

/// What becomes of the thread after a trigger.
enum class ProxyHandlerResult { Continue, Stop };

/// Where a trigger came from: which FIFO of the proxy, and its position in that.
struct TriggerPlace {
  int fifo;
  std::uint64_t position;
};

template <class Trigger>
using BasicProxyHandler = std::function<ProxyHandlerResult(const Trigger&, TriggerPlace)>;
/// MSCCL++'s form.
using ProxyHandler = std::function<ProxyHandlerResult(ProxyTrigger)>;

struct ProxyOptions {
  ProxyThreadOptions thread = {};
  /// More than one spares blocks that push much the queue at one counter. Triggers of different FIFOs have no order.
  int fifos = 1;
  int fifoSize = DEFAULT_FIFO_SIZE;
  /// See FifoOptions.
  int popsPerReport = 1;
  /// Called by the thread after each round over the FIFOs; returns whether it has something under way.
  std::function<bool()> progress = {};
};

namespace detail {

template <class Trigger, class Handler>
BasicProxyHandler<Trigger> asProxyHandler(Handler handler) {
  return [handler = std::move(handler)](const Trigger& trigger, [[maybe_unused]] TriggerPlace place) mutable {
    const auto call = [&]() -> decltype(auto) {
      if constexpr (std::invocable<Handler&, const Trigger&, TriggerPlace>) {
        return handler(trigger, place);
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
    std::invocable<Handler&, const Trigger&> || std::invocable<Handler&, const Trigger&, TriggerPlace>;

}  // namespace detail

/// A handler takes a trigger, and a TriggerPlace too if it likes, and returns a ProxyHandlerResult or nothing, which
/// means Continue. It runs on the proxy's thread, one call at a time, in the order of the pushes into each FIFO. A
/// trigger counts as popped when its handler has returned. An exception of a handler ends the thread and, within
/// moments, every wait of kernels on the FIFOs; check() and stop() throw it.
///
/// Kernels may push before start, and between stop and start: the triggers wait. The FIFOs live as long as somebody
/// holds them.
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
    thread_.endOnFailure(monitor_);
  }

  /// Starts the thread; it has no effect if it runs. With `blocking` it returns when the thread works, and throws what
  /// its start threw.
  void start(bool blocking = false) { thread_.start(blocking); }
  /// Handles what has been pushed, ends the thread and joins it. Throws what check() throws; Error(Timeout) if requests
  /// keep coming.
  void stop() { thread_.stop(); }
  /// As the destructor, for owners of a proxy that others hold too: stops, and logs what has gone wrong unless somebody
  /// has caught it.
  void end() noexcept { thread_.end(); }
  /// Throws what a handler threw, if one did.
  void check() const { thread_.check(); }
  /// Whether the thread runs: not before start, nor after a handler has said Stop or thrown.
  bool running() const noexcept { return thread_.running(); }

  /// Ends the waits of a monitor too when a handler throws, or now if one has: for kernels that wait for something else that
  /// this proxy is to bring about.
  void endOnFailure(const std::shared_ptr<WaitMonitor>& monitor) { thread_.endOnFailure(monitor); }

  int fifos() const noexcept { return static_cast<int>(fifos_.size()); }
  /// One of the FIFOs, to take a device handle from; only the proxy polls it.
  std::shared_ptr<FifoType> fifo(int index = 0) const {
    if (index < 0 || index >= fifos()) {
      throw Error("Proxy: there is no FIFO " + std::to_string(index) + " among " + std::to_string(fifos()),
                  ErrorCode::InvalidUsage);
    }
    return fifos_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<std::shared_ptr<FifoType>> makeFifos(const ProxyOptions& options) const {
    if (options.fifos < 1) throw Error("Proxy: it needs at least one FIFO", ErrorCode::InvalidUsage);
    std::vector<std::shared_ptr<FifoType>> fifos;
    for (int i = 0; i < options.fifos; ++i) {
      fifos.push_back(std::make_shared<FifoType>(FifoOptions{.size = options.fifoSize,
                                                             .device = options.thread.device,
                                                             .popsPerReport = options.popsPerReport,
                                                             .monitor = monitor_}));
    }
    return fifos;
  }

  detail::ProxyRound round() {
    constexpr int mostInARow = 64;  // so that a busy FIFO does not starve the others
    bool worked = false;
    for (int index = 0; index < fifos(); ++index) {
      FifoType& fifo = *fifos_[static_cast<std::size_t>(index)];
      Trigger trigger;
      for (int n = 0; n < mostInARow && fifo.poll(trigger); ++n) {
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
          for (const auto& each : fifos_) each->report();
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
  detail::ProxyThread thread_;  // last: it uses all of the above
};

using Proxy = BasicProxy<ProxyTrigger>;
using WideProxy = BasicProxy<WideTrigger>;

}  // namespace mscclpp
