// The trace of one rank as JSON text, in Chrome's format: a rank is a process, a track a thread. Only its source
// includes the JSON library, which takes long to compile.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/trace/timed_events.hpp"
#include "mscclpp/host/trace/trace.hpp"

namespace mscclpp::detail {

/// Events as text, separated by commas.
using JsonChunk = std::vector<char>;

class TraceJson {
 public:
  /// Collects the trace, which must outlive the object.
  explicit TraceJson(Trace& trace);

  static int rankOf(const Trace& trace);

  /// Calls `take` with one chunk of events after another, of about 1 MiB each, including the names of the tracks.
  void forEachChunk(const std::function<void(const JsonChunk&)>& take) const;
  /// An object with the rank, device, clock error and number of dropped events.
  std::string summary() const;

 private:
  class EventWriter;
  void writeTrack(EventWriter& writer, int number, const TrackEvents& track) const;

  Trace::State& state_;
};

}  // namespace mscclpp::detail
