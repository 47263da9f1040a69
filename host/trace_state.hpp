// What a Trace holds: tracks of events in the host's time, from the blocks of a rank and from its threads.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "clock_map.hpp"
#include "mscclpp/host/trace.hpp"

namespace mscclpp {

namespace detail {

struct TimedEvent {
  std::int64_t time;  ///< nanoseconds of the host's CLOCK_MONOTONIC
  TraceKind kind;     ///< Begin, End or Point
  TraceId id;
  std::uint64_t argument;
};

/// A line of the picture.
struct TrackEvents {
  std::string name;
  std::vector<TimedEvent> events;
  std::uint64_t lost = 0;
};

struct TraceNames {
  std::string event;
  std::string argument;
  std::string endArgument;
};

/// One launch after another: what lies between an Open and a Close goes to the host's time by the two clocks that they have; spans that were left open end
/// with the launch.
void appendLaunches(const std::vector<TraceEvent>& events, const ClockMap& clock, std::vector<TimedEvent>& to);

}  // namespace detail

struct TraceTrack::State {
  State(std::string trackName, std::size_t events) : capacity(events) { track.name = std::move(trackName); }

  void record(TraceKind kind, TraceId id, std::uint64_t argument);
  detail::TrackEvents snapshot();

  std::mutex mutex;
  detail::TrackEvents track;
  std::size_t capacity;
  std::size_t depth = 0;    // recorded spans that have not ended: room for their ends is kept
  std::size_t skipped = 0;  // the same of spans that were not recorded
};

class Trace::State {
 public:
  explicit State(TraceOptions options);

  TraceBuffer buffer() const noexcept { return buffer_; }
  std::shared_ptr<TraceTrack> track(const std::string& name);
  void name(TraceId id, detail::TraceNames names);
  void collect();
  std::uint64_t lost() const;
  std::uint64_t clockError() const;

  int rank() const noexcept { return options_.rank; }
  const Device& device() const noexcept { return options_.device; }
  detail::TraceNames namesOf(TraceId id) const;
  /// By number: those of the blocks, then those of the threads.
  std::map<int, detail::TrackEvents> tracks() const;

 private:
  bool onGpu() const noexcept { return options_.device.type == DeviceType::GPU; }
  void read(void* to, const void* from, std::size_t bytes) const;
  void compareClocks();

  TraceOptions options_;
  std::shared_ptr<void> events_;
  std::shared_ptr<void> cursors_;
  std::shared_ptr<void> exchange_;  // GPU
  TraceBuffer buffer_{};
  mutable std::mutex mutex_;  // of all below
  detail::ClockMap clock_;
  std::map<int, detail::TrackEvents> blocks_;
  std::vector<std::shared_ptr<TraceTrack>> threads_;
  std::map<TraceId, detail::TraceNames> names_;
};

}  // namespace mscclpp
