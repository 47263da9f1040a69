// What a trace is made of in memory: events of 16 bytes, a bounded array of them for each thread that records. Plain bytes, the same on both sides.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// What an event is about. The names below are the library's; those of a user's own events follow FirstUser (userTraceId).
enum class TraceId : std::uint16_t {
  None = 0,
  AllReduce,  ///< one call; argument: bytes of the message
  Push,       ///< input into peers' scratch; argument: step, or first row
  Reduce,     ///< peers' input and the own one into a result, which peers get; argument: step, or row
  Collect,    ///< peers' results into the output; argument: step
  Publish,    ///< telling the peers that a step is over; argument: step
  Wait,       ///< for a peer, from the first look that found nothing; argument: the peer, if it is one

  // Threads of the host.
  Trigger,         ///< a handler of a proxy at work; argument: position in the FIFO
  Asleep,          ///< a proxy without work, between its looks at the FIFOs
  Flushed,         ///< all that a flush asked for has completed; argument: semaphore
  Request = 64,    ///< + TriggerType: what a port channel asked for is done or started; argument: bytes, and semaphore
  Algorithm = 80,  ///< + number of the algorithm: a call of a collective; argument: bytes of the message

  FirstUser = 1024,
  End = 4096,
};

/// The id of the n-th kind of event of one's own, n from 0 to 3071.
MSCCLPP_INLINE constexpr TraceId userTraceId(int n) {
  return static_cast<TraceId>(static_cast<int>(TraceId::FirstUser) + n);
}

enum class TraceKind : std::uint32_t {
  Begin,  ///< of a span
  End,    ///< of the innermost span
  Point,
  Open,  ///< first and last event of a thread in a launch; their argument: nanoseconds when the time was read
  Close,
};

/// An argument is a number of 48 bits, such as bytes, a step or a peer; this one means that there is none.
inline constexpr std::uint64_t noTraceArgument = (std::uint64_t{1} << 48) - 1;

/// time: arch::cycles() of the recording thread, which Open and Close relate to nanoseconds.
struct alignas(16) TraceEvent {
  std::uint64_t time;
  std::uint64_t word;  ///< kind in 4 bits, id in 12, argument in 48

  static MSCCLPP_INLINE constexpr std::uint64_t wordOf(TraceKind kind, TraceId id, std::uint64_t argument) {
    return static_cast<std::uint64_t>(kind) << 60 | (static_cast<std::uint64_t>(id) & 0xfff) << 48 |
           (argument & noTraceArgument);
  }
  MSCCLPP_INLINE constexpr TraceKind kind() const { return static_cast<TraceKind>(word >> 60); }
  MSCCLPP_INLINE constexpr TraceId id() const { return static_cast<TraceId>(word >> 48 & 0xfff); }
  MSCCLPP_INLINE constexpr std::uint64_t argument() const { return word & noTraceArgument; }
};
static_assert(sizeof(TraceEvent) == 16);

/// How far an array of events is filled. One writer: the thread whose array it is, at the end of a launch; but for `lost` of the last cursor of a buffer.
struct TraceCursor {
  std::uint32_t count;
  std::uint32_t lost;  ///< events for which there was no room
};

/// Threads of a block that record: its first, and the first lane of its last warp, which is the control warp of a split block.
inline constexpr int traceRecordersPerBlock = 2;

/// Where the blocks of one sequence of launches record, `capacity` events for each recorder: launches follow each other, and blocks do not share an index.
/// Null events: nothing is recorded. The owner is Trace (host/trace.hpp).
struct TraceBuffer {
  TraceEvent* events;    ///< blocks * traceRecordersPerBlock arrays
  TraceCursor* cursors;  ///< one for each array; and one whose `lost` counts what blocks beyond `blocks` had to record
  std::uint32_t blocks;
  std::uint32_t capacity;
};

}  // namespace mscclpp
