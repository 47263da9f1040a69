// Events in the host's time, and the conversion of those that blocks recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/trace/clock_map.hpp"
#include "mscclpp/basic/trace_event.hpp"

namespace mscclpp::detail {

struct TimedEvent {
  std::int64_t time;  ///< nanoseconds of the host's CLOCK_MONOTONIC
  TraceKind kind;     ///< Begin, End or Point
  TraceId id;
  std::uint64_t argument;
};

/// The events of one recorder, in order.
struct TrackEvents {
  std::string name;
  std::vector<TimedEvent> events;
  std::uint64_t lost = 0;  ///< events that did not fit
};

/// Appends the events of one recorder of a block, one launch after another. The Open and Close of a launch hold both
/// clocks of the device, by which cycles are converted to nanoseconds, and `clock` maps these to the host's time. Spans
/// that were left open end with the launch.
void appendLaunchEvents(const std::vector<TraceEvent>& events, const ClockMap& clock, std::vector<TimedEvent>& to);

}  // namespace mscclpp::detail
