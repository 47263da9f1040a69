// The order of calls that are enqueued on several streams: those of an object, and those of a chain of objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "stream_events.hpp"

namespace mscclpp::kernels {

/// Orders the calls of one object: each runs after the one before, on whichever streams they are. A call on the stream
/// of the previous one costs no call of CUDA.
///
/// Ordered are eager calls with each other, and calls in one capture with each other. Launches of graphs are the
/// caller's to order. Neither blocks the host. Not thread-safe, as the calls themselves.
class StreamOrder {
 public:
  explicit StreamOrder(StreamEvents& events) : events_(events) {}

  /// Called before a call is enqueued. The stream of the last call that was not captured must still exist.
  void enter(CUstream_st* stream) {
    if (last_ == stream && eager_ == last_) return;
    const std::uint64_t capture = events_.captureOf(stream);
    if (capture == 0) {
      if (eager_ && eager_ != stream && events_.captureOf(*eager_) == 0) runAfter(*eager_, stream);
      eager_ = stream;
    } else if (last_ && last_ != stream && captureOfLast(capture) == capture) {
      runAfter(*last_, stream);
    }
    last_ = stream;
    lastCapture_ = capture;
  }

 private:
  /// The capture of the last call's stream. Streams of earlier captures may no longer exist, so only the stream of an
  /// eager call is asked: a call on it may have been captured without a query.
  std::uint64_t captureOfLast(std::uint64_t current) const {
    if (lastCapture_ == current || eager_ != last_) return lastCapture_;
    return events_.captureOf(*last_);
  }

  void runAfter(CUstream_st* earlier, CUstream_st* stream) {
    if (event_ == nullptr) event_ = events_.make();
    events_.record(event_, earlier);
    events_.wait(stream, event_);
  }

  StreamEvents& events_;
  StreamEvents::Event event_;
  std::optional<CUstream_st*> eager_;  ///< of the last eager call
  std::optional<CUstream_st*> last_;   ///< of the last call
  std::uint64_t lastCapture_ = 0;      ///< of the last call, where it was asked for
};

/// Orders calls of several objects on a GPU: each runs after the one before, eager or in a graph. The order is that in
/// which the host enqueues eager calls and launches graphs. It does not block the host. Thread-safe.
class CallChain {
 public:
  explicit CallChain(StreamEvents& events) : events_(events), end_(events.make()) {}

  /// A call that is being enqueued: no other call of the chain can be until it is destroyed.
  class Turn {
   public:
    Turn() = default;  ///< of no chain
    /// Called after the call has been enqueued.
    void end() {
      if (chain_ != nullptr) chain_->end(*this);
    }

   private:
    friend class CallChain;
    CallChain* chain_ = nullptr;
    std::unique_lock<std::mutex> lock_;
    CUstream_st* stream_ = nullptr;
    std::uint64_t capture_ = 0;
  };

  /// The next call runs after what the stream has now, unless that is being captured.
  void startAfter(CUstream_st* stream) {
    const std::lock_guard lock(mutex_);
    if (events_.captureOf(stream) == 0) events_.record(end_, stream);
  }

  /// Called before a call is enqueued on the stream: it then runs after the calls before it.
  [[nodiscard]] Turn begin(CUstream_st* stream) {
    Turn turn;
    turn.lock_ = std::unique_lock(mutex_);
    turn.chain_ = this;
    turn.stream_ = stream;
    turn.capture_ = events_.captureOf(stream);
    const Capture* known = find(turn.capture_);
    if (turn.capture_ == 0) {
      events_.wait(stream, end_);
    } else if (known != nullptr) {
      events_.wait(stream, known->end);
    } else {
      // Once for each graph: which records of the graph itself a second node would wait for is not defined.
      events_.waitInGraph(stream, end_);
    }
    return turn;
  }

 private:
  struct Capture {
    std::uint64_t number;
    StreamEvents::Event end;  ///< of the capture's last call, for the next one in it
  };
  static constexpr std::size_t mostCaptures = 64;  ///< at once; the end of a capture is not announced

  void end(const Turn& turn) {
    if (turn.capture_ == 0) return events_.record(end_, turn.stream_);
    events_.recordInGraph(end_, turn.stream_);
    const Capture* known = find(turn.capture_);
    events_.record(known != nullptr ? known->end : add(turn.capture_).end, turn.stream_);
  }

  Capture* find(std::uint64_t number) {
    for (Capture& capture : captures_) {
      if (capture.number == number) return &capture;
    }
    return nullptr;
  }
  Capture& add(std::uint64_t number) {
    if (captures_.size() == mostCaptures) captures_.erase(captures_.begin());
    return captures_.emplace_back(Capture{number, events_.make()});
  }

  StreamEvents& events_;
  std::mutex mutex_;
  StreamEvents::Event end_;  ///< of the last call
  std::vector<Capture> captures_;
};

}  // namespace mscclpp::kernels
