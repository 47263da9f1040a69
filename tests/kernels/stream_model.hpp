// A model of streams, events and graphs: which calls are known to have ended when another one starts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/stream_events.hpp"

namespace mscclpp::test {

/// Streams are numbers in place of handles. Counts what it is asked to do.
class StreamModel final : public kernels::StreamEvents {
 public:
  using Calls = std::set<int>;

  static CUstream_st* stream(int number) { return reinterpret_cast<CUstream_st*>(static_cast<std::uintptr_t>(number)); }

  Event make() override { return std::make_shared<State>(); }
  std::uint64_t idOf(CUstream_st* stream) override {
    use(stream);
    if (captures_.contains(stream)) ++errors;
    const auto [known, isNew] = ids_.try_emplace(stream, lastId_ + 1);
    if (isNew) ++lastId_;
    return known->second;
  }
  std::uint64_t captureOf(CUstream_st* stream) override {
    use(stream);
    return captures_.contains(stream) ? captures_.at(stream) : 0;
  }
  void record(const Event& event, CUstream_st* stream) override {
    use(stream);
    ++records;
    State& state = stateOf(event);
    state.marked = before_[stream];
    state.capture = captures_.contains(stream) ? captures_.at(stream) : 0;
  }
  void wait(CUstream_st* stream, const Event& event) override {
    use(stream);
    ++waits;
    const State& state = stateOf(event);
    // CUDA rejects a wait that connects a capture with other work.
    const std::uint64_t capture = captures_.contains(stream) ? captures_.at(stream) : 0;
    if (state.capture != capture) ++errors;
    before_[stream].insert(state.marked.begin(), state.marked.end());
  }
  void recordInGraph(const Event& event, CUstream_st* stream) override {
    use(stream);
    ++graphNodes;
    Graph& graph = graphs_[captures_.at(stream)];
    graph.event = event;
    graph.recorded = before_[stream];
  }
  void waitInGraph(CUstream_st* stream, const Event& event) override {
    use(stream);
    ++graphNodes;
    Graph& graph = graphs_[captures_.at(stream)];
    if (graph.waits) ++errors;
    graph.waits = true;
    graph.event = event;
  }

  /// Adds a call to the stream. Returns the calls that have ended before it.
  Calls call(CUstream_st* stream, int number) {
    const Calls before = before_[stream];
    before_[stream].insert(number);
    if (captures_.contains(stream)) graphs_[captures_.at(stream)].calls.insert(number);
    return before;
  }

  /// The streams capture; the calls in them before do not belong to the graph.
  void beginCapture(std::uint64_t number, const std::vector<CUstream_st*>& streams) {
    for (CUstream_st* each : streams) {
      captures_[each] = number;
      outside_[each] = before_[each];
      before_[each].clear();
    }
  }
  void endCapture(const std::vector<CUstream_st*>& streams) {
    for (CUstream_st* each : streams) {
      captures_.erase(each);
      before_[each] = outside_[each];
    }
  }
  /// Launches a graph. Returns the calls that have ended before its first.
  Calls launch(std::uint64_t capture, CUstream_st* stream) {
    const Graph& graph = graphs_.at(capture);
    Calls before = before_[stream];
    if (graph.waits) {
      const Calls& marked = stateOf(graph.event).marked;
      before.insert(marked.begin(), marked.end());
    }
    before_[stream].insert(graph.calls.begin(), graph.calls.end());
    before_[stream].insert(before.begin(), before.end());
    if (!graph.recorded.empty()) {
      Calls& marked = stateOf(graph.event).marked;
      marked = before;
      marked.insert(graph.recorded.begin(), graph.recorded.end());
    }
    return before;
  }
  /// From now on any use of the stream is an error, until there is a new one with its address.
  void destroy(CUstream_st* stream) { destroyed_.insert(stream); }
  void create(CUstream_st* stream) {
    destroyed_.erase(stream);
    before_.erase(stream);
    ids_[stream] = ++lastId_;
  }

  int errors = 0;
  int records = 0;     ///< of events, other than in graphs
  int waits = 0;       ///< for events, other than in graphs
  int graphNodes = 0;  ///< for events

 private:
  struct State {
    Calls marked;
    std::uint64_t capture = 0;
  };
  struct Graph {
    Calls calls;
    Calls recorded;  ///< those that the last record of the event marks
    Event event;
    bool waits = false;
  };
  static State& stateOf(const Event& event) { return *static_cast<State*>(event.get()); }
  void use(CUstream_st* stream) {
    if (destroyed_.contains(stream)) ++errors;
  }

  std::map<CUstream_st*, Calls> before_;
  std::map<CUstream_st*, Calls> outside_;  ///< of streams that capture
  std::map<CUstream_st*, std::uint64_t> captures_;
  std::map<std::uint64_t, Graph> graphs_;
  std::set<CUstream_st*> destroyed_;
  std::map<CUstream_st*, std::uint64_t> ids_;
  std::uint64_t lastId_ = 0;
};

}  // namespace mscclpp::test
