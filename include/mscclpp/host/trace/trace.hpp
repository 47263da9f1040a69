// Traces: collect the events that device code and host threads record, in the host's time, and write them in Chrome's
// format for Perfetto.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/basic/clock_sync.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

namespace detail {
class TraceJson;
}

struct TraceOptions {
  /// The rank that this process has in the trace, and where its blocks run: on a GPU that must be current whenever the
  /// trace is created, collected or written.
  int rank = 0;
  Device device = DeviceType::CPU;
  /// Maximum number of recording blocks, and of events per recorder between two calls of collect(): 16 bytes each. A
  /// span is two events.
  int blocks = 128;
  int eventsPerRecorder = 2048;
  /// Events per host thread between two calls of collect().
  std::size_t eventsPerThread = std::size_t{1} << 20;
  /// GPU: starts a kernel that responds to the exchange, and returns. `launchClockSyncOnGpu` of mscclpp/clock_sync.cuh;
  /// Collectives::makeTrace fills it in.
  std::function<void(ClockSync* exchange)> launchClockSync = {};
};

/// The track of a host thread: a TracePolicy (basic/concepts.hpp). One thread records, any thread may collect; each
/// call takes a lock that is nearly always uncontended.
class TraceTrack {
 public:
  void begin(TraceId id, std::uint64_t argument = noTraceArgument);
  void end(TraceId id, std::uint64_t argument = noTraceArgument);
  void point(TraceId id, std::uint64_t argument = noTraceArgument);

  ~TraceTrack();
  TraceTrack(const TraceTrack&) = delete;
  TraceTrack& operator=(const TraceTrack&) = delete;

 private:
  friend class Trace;
  class State;
  explicit TraceTrack(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Owns the buffer that the blocks of one rank record into, and the tracks of its threads. All times are the host's
/// CLOCK_MONOTONIC: a GPU's clock is compared with it when the trace is created and at each collect(), and interpolated
/// in between. docs/tracing.md describes the accuracy.
class Trace {
 public:
  /// Throws Error(InvalidUsage) for sizes that are not positive, for 500000 or more blocks or more than 1 TiB of
  /// events, and for a GPU without launchClockSync; Error(Timeout) if the GPU does not respond.
  explicit Trace(TraceOptions options);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// For kernels: BlockTrace (basic/trace.hpp), or the arguments of a Traced collective. Launches that record must not
  /// overlap.
  TraceBuffer buffer() const noexcept;

  /// The track of that name for a host thread, created at the first call. It may outlive the trace.
  std::shared_ptr<TraceTrack> track(const std::string& name);

  /// The track of that name for the calling thread. If several threads ask for one name, those after the first get
  /// tracks named "name 2", "name 3" and so on, since the spans of two threads do not nest.
  std::shared_ptr<TraceTrack> trackOfThisThread(const std::string& name);

  /// How events with an id are displayed: their name, and the names of the numbers passed to begin or point, and to
  /// end. Events without a name are displayed with their id.
  void name(TraceId id, std::string name, std::string argument = "value", std::string endArgument = "result");

  /// Moves the recorded events of the blocks out of the buffer, which is empty afterwards; no recording launch may be
  /// in progress.
  void collect();

  /// Number of events dropped so far because a buffer was full, including those of threads.
  std::uint64_t lost() const;
  /// Maximum error of the times of this rank's blocks relative to the host's, in nanoseconds; 0 on a CPU. By the
  /// comparisons so far.
  std::uint64_t clockError() const;

 private:
  friend class detail::TraceJson;
  class State;
  std::unique_ptr<State> state_;
};

/// Collective over the ranks of the bootstrap: collects each rank's trace, and rank 0 writes the file. Every rank
/// throws if it cannot be written, or if not all ranks are on one host, and so on one clock. Rank 0 holds a chunk of
/// the events at a time, and each wait for it or for a peer is as long as a chunk takes, so the total time may exceed
/// the bootstrap's timeout. Its messages use Bootstrap::TraceTag; after an Error(Timeout) create a new bootstrap. The
/// file is written as `path`.part, and replaces an older one when it is complete; a path that is not a regular file is
/// written directly.
void writeTrace(const std::string& path, Trace& trace, Bootstrap& bootstrap);
/// The same for ranks that are all in this process. Throws Error(InvalidUsage), without touching a file, for a null
/// trace and for two of the same rank.
void writeTrace(const std::string& path, const std::vector<Trace*>& traces);

}  // namespace mscclpp
