// The state of a Trace: tracks of events in the host's time, from the blocks of a rank and from its threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/trace/device_clock.hpp"
#include "host/trace/timed_events.hpp"
#include "host/trace/trace_names.hpp"
#include "mscclpp/basic/trace_capacity.hpp"
#include "mscclpp/host/trace/trace.hpp"

namespace mscclpp {

/// A bounded buffer that one thread records into.
class TraceTrack::State {
 public:
  State(std::string name, std::size_t capacity) : name_(std::move(name)), capacity_(capacity), free_(capacity) {}

  const std::string& name() const noexcept { return name_; }
  void record(TraceKind kind, TraceId id, std::uint64_t argument);
  /// Moves the recorded events out of the buffer, which is empty afterwards; snapshot() returns all of them.
  void collect();
  detail::TrackEvents snapshot() const;
  std::uint64_t lost() const;

 private:
  const std::string name_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;  // guards all members below
  std::vector<detail::TimedEvent> events_;
  TraceCapacity<std::size_t> free_;
};

class Trace::State {
 public:
  explicit State(TraceOptions options);

  TraceBuffer buffer() const noexcept { return buffer_; }
  std::shared_ptr<TraceTrack> track(const std::string& name);
  std::shared_ptr<TraceTrack> trackOfThisThread(const std::string& name);
  void name(TraceId id, detail::TraceNames names);
  void collect();
  std::uint64_t lost() const;
  std::uint64_t clockError() const;

  int rank() const noexcept { return options_.rank; }
  const Device& device() const noexcept { return options_.device; }
  detail::TraceNames namesOf(TraceId id) const;
  /// By number: tracks of blocks, then those of threads.
  std::map<int, detail::TrackEvents> tracks() const;

 private:
  bool onGpu() const noexcept { return options_.device.type == DeviceType::GPU; }
  void read(void* to, const void* from, std::size_t bytes) const;
  std::shared_ptr<TraceTrack> trackWithLock(const std::string& name);

  TraceOptions options_;
  std::shared_ptr<void> events_;
  std::shared_ptr<void> cursors_;
  TraceBuffer buffer_{};
  std::optional<detail::DeviceClock> clock_;
  mutable std::mutex mutex_;  // guards all members below
  std::map<int, detail::TrackEvents> blocks_;
  std::vector<std::shared_ptr<TraceTrack>> threads_;
  std::map<std::string, std::map<std::thread::id, std::shared_ptr<TraceTrack>>> tracksOfThreads_;
  std::map<TraceId, detail::TraceNames> names_;
};

}  // namespace mscclpp
