// Traces: collects what device code and threads of the host record, on the host's clock, and writes it in Chrome's format for Perfetto.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/basic/clock_exchange.hpp"
#include "mscclpp/basic/trace_event.hpp"
#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {

struct TraceOptions {
  /// Whose process of the trace this is, and where its blocks run: on a GPU that is current whenever the trace is made, collected or written.
  int rank = 0;
  Device device = DeviceType::CPU;
  /// Blocks that can record, and events of each recorder between two calls of collect(): 16 bytes each. A span is two events.
  int blocks = 128;
  int eventsPerRecorder = 2048;
  /// Events that each thread of the host can record in all.
  std::size_t eventsPerThread = std::size_t{1} << 20;
  /// GPU: starts a kernel that answers the exchange, and returns. `answerClockOnGpu` of mscclpp/trace_clock.cuh; Collectives::makeTrace fills it in.
  std::function<void(ClockExchange* exchange)> answerClock = {};
};

/// The track of a thread of the host: a TracePolicy (basic/concepts.hpp). One thread records, any thread may collect; each call takes a lock that is
/// nearly always free.
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
  struct State;
  explicit TraceTrack(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Owns the buffer that the blocks of one rank record into, and the tracks of its threads. All times are the host's CLOCK_MONOTONIC: a GPU's clock is compared
/// with it when the trace is made and at each collect(), and interpolated between. docs/tracing.md says how well that works.
class Trace {
 public:
  /// Throws Error(InvalidUsage) for numbers that are not positive, for 500000 blocks or more than 1 TiB of events, and for a GPU without answerClock; Error(Timeout) if the GPU does not answer.
  explicit Trace(TraceOptions options);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// For kernels: BlockTrace (basic/trace.hpp), or the arguments of a Traced collective. Launches that record follow each other.
  TraceBuffer buffer() const noexcept;

  /// The track of that name for a thread of the host, new at the first call. It may outlive the trace.
  std::shared_ptr<TraceTrack> track(const std::string& name);

  /// How events of an id are shown: their name, and what the numbers given to begin or point, and to end, are. Events that have no name show their id.
  void name(TraceId id, std::string name, std::string argument = "value", std::string endArgument = "result");

  /// Takes out what the blocks have recorded, and gives them an empty buffer; with no recording launch in progress.
  void collect();

  /// Events for which there was no room so far, those of threads included.
  std::uint64_t lost() const;
  /// How far the times of this rank's blocks may be off the host's, in nanoseconds; 0 on a CPU. Of the clocks compared so far.
  std::uint64_t clockError() const;

 private:
  friend class TraceWriter;
  class State;
  std::unique_ptr<State> state_;
};

/// Collective over the ranks of the bootstrap: collects each rank's trace and has rank 0 write the file. Every rank throws if it cannot be written, or if not
/// all ranks are on one host, and so on one clock. Rank 0 holds a piece of the events at a time, and each wait for it or for a peer is as long as a piece takes,
/// so the time of the whole may exceed the bootstrap's timeout. Its messages use Bootstrap::TraceTag; after an Error(Timeout) make a new bootstrap.
/// The file is written as `path`.part, and takes the place of an older one when it is whole; what is not a plain file is written directly.
void writeTrace(const std::string& path, Trace& trace, Bootstrap& bootstrap);
/// The same for ranks that all live in this process. Throws Error(InvalidUsage), with no file touched, for a null trace and for two of the same rank.
void writeTrace(const std::string& path, const std::vector<Trace*>& traces);

}  // namespace mscclpp
