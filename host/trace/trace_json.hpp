// The trace of one rank as JSON, in Chrome's format: a rank is a process, a track a thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "host/trace/timed_events.hpp"
#include "mscclpp/host/trace/trace.hpp"

namespace mscclpp::detail {

using Json = nlohmann::ordered_json;

/// Events as text, separated by commas.
using JsonChunk = std::vector<char>;

class TraceJson {
 public:
  /// Collects the trace, which must outlive the object.
  explicit TraceJson(Trace& trace);

  static int rankOf(const Trace& trace);

  /// Calls `take` with one chunk of events after another, of about 1 MiB each, including the names of the tracks.
  void forEachChunk(const std::function<void(const JsonChunk&)>& take) const;
  /// Rank, device, clock error and number of dropped events.
  Json summary() const;

 private:
  class EventWriter;
  void writeTrack(EventWriter& writer, int number, const TrackEvents& track) const;

  Trace::State& state_;
};

}  // namespace mscclpp::detail
