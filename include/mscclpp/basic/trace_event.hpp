// The memory layout of a trace, the same on host and device: a bounded array of 16-byte events per recording thread.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The subject of an event. Ids of user-defined events start at FirstUser (userTraceId).
enum class TraceId : std::uint16_t {
  None = 0,
  AllReduce,  ///< a call; argument: bytes of the message
  Push,       ///< sending input to the peers' scratch; argument: step, or first row
  Reduce,     ///< reducing all ranks' input and sending the result to the peers; argument: step, or row
  Collect,    ///< copying the peers' results to the output; argument: step
  Publish,    ///< signalling the end of a step to the peers; argument: step
  Wait,       ///< waiting, from the first failed attempt; argument: the peer, if it is one

  // Threads of the host.
  Trigger,        ///< a call of a proxy's handler; argument: position in the FIFO
  Idle,           ///< a proxy without work, between its polls of the FIFOs
  FlushComplete,  ///< completion of a flush; argument: semaphore id

  // Calls of the other collectives; argument: bytes, of args.count elements.
  AllGather = 32,
  ReduceScatter,
  AllToAll,
  Broadcast,
  ReduceToRoot,  ///< Reduce is the stage
  Gather,
  Scatter,
  SendReceive,  ///< a message of a pair

  Request = 64,    ///< + TriggerType: execution of a port channel's request; argument: bytes, and semaphore id
  Algorithm = 80,  ///< + index of the algorithm: a call of a collective; argument: bytes of the message

  FirstUser = 1024,
  End = 4096,
};

/// The id of user-defined event n, n in [0, 3071].
MSCCLPP_INLINE constexpr TraceId userTraceId(int n) {
  return static_cast<TraceId>(static_cast<int>(TraceId::FirstUser) + n);
}

enum class TraceKind : std::uint32_t {
  Begin,  ///< of a span
  End,    ///< of the innermost span
  Point,
  Open,  ///< first event of a thread in a launch, Close the last; argument: nanoseconds at `time`
  Close,
};

/// The value of an event without an argument. Arguments are 48-bit numbers such as bytes, a step or a peer.
inline constexpr std::uint64_t noTraceArgument = (std::uint64_t{1} << 48) - 1;

/// An event. time: arch::cycles() of the recording thread; Open and Close relate it to nanoseconds.
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

/// The number of events in an array. Written by the thread that records into the array, at the end of a launch; `lost`
/// of a buffer's last cursor has many writers.
struct TraceCursor {
  std::uint32_t count;
  std::uint32_t lost;  ///< events dropped because the array was full
};

/// The number of threads of a block that record: its first thread, and the first lane of its last warp, which is the
/// control warp of a warp-specialised block.
inline constexpr int traceRecordersPerBlock = 2;

/// The arrays into which the blocks of consecutive launches record, `capacity` events per recorder. Launches must not
/// overlap, nor two blocks of a launch have the same index. Nothing is recorded if `events` is null. Owned by Trace
/// (host/trace/trace.hpp).
struct TraceBuffer {
  TraceEvent* events;    ///< blocks * traceRecordersPerBlock arrays
  TraceCursor* cursors;  ///< one per array, and a last one whose `lost` counts the events of blocks beyond `blocks`
  std::uint32_t blocks;
  std::uint32_t capacity;
};

}  // namespace mscclpp
