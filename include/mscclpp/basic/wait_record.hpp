// The record of a failed wait, and the words by which the host aborts waits: host-visible memory with the same layout
// on host and device.
#pragma once

#include "mscclpp/arch/word.hpp"

namespace mscclpp {

/// The operation that waited.
enum class WaitOperation : std::uint32_t {
  Unknown = 0,
  Packet,        ///< for a packet of a peer with the flag of this call
  Semaphore,     ///< for a signal of a peer
  TeamBarrier,   ///< for the arrival of a peer at a team barrier
  GridBarrier,   ///< for the arrival of the other blocks of the grid
  Progress,      ///< for a peer's step counter in a pipelined collective
  Fifo,          ///< for free slots in a FIFO, or for a trigger to be popped
  Barrier,       ///< for a hardware barrier in shared memory
  FifoTooSmall,  ///< a push by a warp into a FIFO that has fewer slots than the warp has lanes
  User,          ///< for a condition of the caller's own: WaitSite's peer is a rank of the job, or -1
  Call,          ///< for a peer to make the same call of a collective (collective/call_check.hpp)
  // Of plans (plan/execution.hpp); `block` of the record is block + 65536 * operation of the block.
  PlanPacket,     ///< for a packet of a peer
  PlanSignal,     ///< for a signal of a peer
  PlanFlush,      ///< for the completion of writes by a proxy
  PlanBarrier,    ///< for other blocks of the rank at a barrier
  PlanSemaphore,  ///< for a device semaphore of the rank
};

/// Why the wait failed. The last six are wrong calls of a collective, found by WaitOperation::Call; `expected` is then
/// what this rank passes, and `seen` what the peer does.
enum class WaitOutcome : std::uint32_t {
  Pending = 0,
  Deadline,
  Aborted,
  PeerLeft,
  InvalidCall,      ///< the arguments are not accepted; expected: elements, seen: blocks + 65536 * threads of the call
  OtherCollective,  ///< numbers of the types of collective
  OtherCount,       ///< elements
  OtherGrid,        ///< blocks + 65536 * threads
  OutputTooSmall,   ///< of the peer, or of this rank, for a dispatch; expected: rows that it holds, seen: that it gets
  OtherHandle,      ///< of a combine, whose memory no such dispatch has written; expected and seen: Handle::stampOf()
};

/// The first failed wait of a context. The thread that changes `state` from 0 to 1 writes the record, then stores 2
/// with release.
struct WaitRecord {
  std::uint32_t state;  ///< 0 = empty, 1 = being written, 2 = valid
  WaitOutcome outcome;
  WaitOperation operation;
  std::int32_t rank;    ///< the rank that waited
  std::int32_t peer;    ///< the rank that it waited for; -1: not a single peer
  std::uint32_t block;  ///< block index of the waiting thread
  std::uint64_t expected;
  std::uint64_t seen;
  std::uint64_t waitedNanoseconds;
};

/// Host-visible memory of one context. `abort`, `anyLeft`, `leftRanks` and `teamIsJob` are written by the host only,
/// `expired` and `record` by the device only.
struct WaitControl {
  /// The departures of ranks from here on end no wait. Also the limit of the launcher.
  static constexpr int maxLeftRanks = 4096;

  alignas(64) std::uint32_t abort;  ///< non-zero: all waits of the context are to fail
  std::uint32_t anyLeft;            ///< non-zero: leftRanks has a bit that is set
  /// A bit for each rank that has left the job in order: waits for it are to fail.
  std::uint32_t leftRanks[maxLeftRanks / 32];
  /// Non-zero: the team of the collectives that wait is all ranks of the job, in order. Otherwise their waits, which
  /// name ranks of the team, do not look at leftRanks.
  std::uint32_t teamIsJob;
  alignas(64) std::uint32_t expired;  ///< non-zero: a wait of the context has failed, so the others fail too
  alignas(64) WaitRecord record;
};

}  // namespace mscclpp
