// A trace buffer in the memory of a backend, and the events recorded in it.
#pragma once

#include <utility>
#include <vector>

#include "backend.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "test_data.hpp"

namespace mscclpp::test {

/// Events and cursors of one rank, followed by a poisoned array.
template <class BackendType>
class TraceMemory {
 public:
  TraceMemory(BackendType& backend, std::uint32_t blocks, std::uint32_t capacity)
      : blocks_(blocks),
        capacity_(capacity),
        events_(backend.allocate(1, (arrays() + 1) * capacity * sizeof(TraceEvent), poisonByte)),
        cursors_(backend.allocate(1, (arrays() + 1) * sizeof(TraceCursor), 0)) {}

  TraceBuffer buffer() {
    return {reinterpret_cast<TraceEvent*>(events_.window().at(0)),
            reinterpret_cast<TraceCursor*>(cursors_.window().at(0)), blocks_, capacity_};
  }
  std::size_t arrays() const { return std::size_t{blocks_} * traceRecordersPerBlock; }

  struct Contents {
    std::vector<std::vector<TraceEvent>> tracks;
    std::vector<TraceCursor> cursors;
    bool unusedIsPoison;
  };
  Contents read() {
    Contents result{{}, cursors_.template read<TraceCursor>(0), true};
    const auto events = events_.template read<TraceEvent>(0);
    for (std::size_t array = 0; array <= arrays(); ++array) {
      const auto first = events.begin() + static_cast<std::ptrdiff_t>(array * capacity_);
      const auto count = static_cast<std::ptrdiff_t>(array < arrays() ? result.cursors[array].count : 0);
      result.tracks.emplace_back(first, first + count);
      for (auto rest = first + count; rest != first + static_cast<std::ptrdiff_t>(capacity_); ++rest) {
        const std::uint64_t poison = 0x0101010101010101u * poisonByte;
        result.unusedIsPoison &= rest->time == poison && rest->word == poison;
      }
    }
    result.tracks.pop_back();
    return result;
  }

 private:
  std::uint32_t blocks_;
  std::uint32_t capacity_;
  decltype(std::declval<BackendType>().allocate(1, 1, 0)) events_;
  decltype(std::declval<BackendType>().allocate(1, 1, 0)) cursors_;
};

inline std::vector<TraceKind> kindsOf(const std::vector<TraceEvent>& events) {
  std::vector<TraceKind> kinds;
  for (const TraceEvent& event : events) kinds.push_back(event.kind());
  return kinds;
}

}  // namespace mscclpp::test
