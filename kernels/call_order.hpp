// The order of calls that are enqueued on several streams: those of an object, and those of a chain of objects.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "stream_events.hpp"

namespace mscclpp::kernels {

/// Which launches of graphs are ordered with other calls; else they are the caller's to order.
enum class GraphLaunches { Unordered, Ordered };

/// Orders calls on streams of one GPU: each runs after the one before, on whichever streams they are. That holds for
/// eager calls with each other, for calls in one capture with each other and, with GraphLaunches::Ordered, for eager
/// calls and graphs with such calls in them, in the order in which the host enqueues and launches them.
///
/// An event marks the end of each call, so that its stream may be destroyed at any time: streams are known by their
/// ids, since a new stream may have the address of a destroyed one. An eager call on the stream of the one before waits
/// for no event. Nothing blocks the host. Thread-safe.
class CallOrder {
 public:
  explicit CallOrder(StreamEvents& events) : events_(events), end_(events.make()) {}

  /// A call that is being enqueued: no other one can be until it is destroyed.
  class Turn {
   public:
    Turn() = default;  ///< of no order
    /// Whether the call becomes part of a graph.
    bool isCaptured() const noexcept { return capture_ != 0; }
    /// Called after the call has been enqueued.
    void end() {
      if (order_ != nullptr) order_->end(*this);
    }

   private:
    friend class CallOrder;
    CallOrder* order_ = nullptr;
    std::unique_lock<std::mutex> lock_;
    CUstream_st* stream_ = nullptr;
    std::uint64_t capture_ = 0;  ///< that the stream is part of; 0: none
    std::uint64_t id_ = 0;       ///< then: of the stream
    GraphLaunches graphs_ = GraphLaunches::Unordered;
  };

  /// Called before a call is enqueued on the stream: it then runs after the calls before it.
  [[nodiscard]] Turn begin(CUstream_st* stream, GraphLaunches graphs) {
    Turn turn;
    turn.lock_ = std::unique_lock(mutex_);
    turn.order_ = this;
    turn.stream_ = stream;
    turn.capture_ = events_.captureOf(stream);
    turn.graphs_ = graphs;
    if (turn.capture_ == 0) {
      turn.id_ = events_.idOf(stream);
      // A graph may have been launched since the last eager call.
      if (hasOrderedGraphs_ || (lastId_ && lastId_ != turn.id_)) events_.wait(stream, end_);
    } else if (const Capture* known = find(turn.capture_)) {
      events_.wait(stream, known->end);
    } else if (graphs == GraphLaunches::Ordered) {
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
    if (turn.capture_ == 0) {
      events_.record(end_, turn.stream_);
      lastId_ = turn.id_;
      return;
    }
    if (turn.graphs_ == GraphLaunches::Ordered) {
      events_.recordInGraph(end_, turn.stream_);
      hasOrderedGraphs_ = true;
    }
    Capture* known = find(turn.capture_);
    Capture& capture = known != nullptr ? *known : add(turn.capture_);
    events_.record(capture.end, turn.stream_);
  }

  Capture* find(std::uint64_t number) {
    for (Capture& capture : captures_) {
      if (capture.number == number) return &capture;
    }
    return nullptr;
  }
  Capture& add(std::uint64_t number) {
    if (captures_.size() < mostCaptures) return captures_.emplace_back(Capture{number, events_.make()});
    // The oldest one, whose event can be recorded anew.
    std::rotate(captures_.begin(), captures_.begin() + 1, captures_.end());
    captures_.back().number = number;
    return captures_.back();
  }

  StreamEvents& events_;
  std::mutex mutex_;
  StreamEvents::Event end_;              ///< of the last eager call, or launch of an ordered graph
  std::optional<std::uint64_t> lastId_;  ///< of the stream of the last eager call
  bool hasOrderedGraphs_ = false;
  std::vector<Capture> captures_;
};

}  // namespace mscclpp::kernels
