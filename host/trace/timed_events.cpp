#include "host/trace/timed_events.hpp"

#include <cstddef>

#include "mscclpp/arch/clock.hpp"

namespace mscclpp::detail {

void appendLaunchEvents(const std::vector<TraceEvent>& events, const ClockMap& clock, std::vector<TimedEvent>& to) {
  const std::int64_t around = clock.last() != 0 ? clock.last() : static_cast<std::int64_t>(arch::nanoseconds());
  for (std::size_t first = 0; first < events.size();) {
    std::size_t last = first;
    while (last + 1 < events.size() && events[last].kind() != TraceKind::Close) ++last;
    const TraceEvent& open = events[first];
    const TraceEvent& close = events[last];
    const std::int64_t start = unwrapTimestamp(open.argument(), around);
    const std::int64_t end = unwrapTimestamp(close.argument(), around);
    const auto cycles = static_cast<double>(close.time - open.time);
    const double nanosecondsPerCycle = cycles > 0 ? static_cast<double>(end - start) / cycles : 0;
    const auto timeOf = [&](const TraceEvent& event) {
      const auto passed = static_cast<double>(static_cast<std::int64_t>(event.time - open.time));
      return clock.map(start + static_cast<std::int64_t>(passed * nanosecondsPerCycle));
    };
    std::vector<TraceId> spans;
    for (std::size_t i = first; i <= last; ++i) {
      const TraceEvent& event = events[i];
      const TraceKind kind = event.kind();
      if (kind == TraceKind::Open || kind == TraceKind::Close) continue;
      if (kind == TraceKind::Begin) spans.push_back(event.id());
      if (kind == TraceKind::End && !spans.empty()) spans.pop_back();
      to.push_back({timeOf(event), kind, event.id(), event.argument()});
    }
    for (; !spans.empty(); spans.pop_back())
      to.push_back({clock.map(end), TraceKind::End, spans.back(), noTraceArgument});
    first = last + 1;
  }
}

}  // namespace mscclpp::detail
