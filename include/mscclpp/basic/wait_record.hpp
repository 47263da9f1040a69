// What a wait that ended without success leaves in host-visible memory, and how the host ends waits: plain bytes, the same on both sides.
#pragma once

#include "mscclpp/arch/word.hpp"

namespace mscclpp {

/// What the waiting code was waiting for.
enum class WaitOperation : std::uint32_t {
  Unknown = 0,
  Packet,        ///< a packet of a peer (flag not yet that of this call)
  Semaphore,     ///< a signal of a peer
  TeamBarrier,   ///< the arrival of a peer at a team barrier
  GridBarrier,   ///< the arrival of the other blocks of this grid
  Progress,      ///< a peer's step counter in a pipelined collective
  Fifo,          ///< room in a FIFO, or its entry being handled
  Barrier,       ///< a hardware barrier in shared memory
  FifoTooSmall,  ///< room for a warp in a FIFO with fewer slots than lanes, which there never is
};

/// Why the wait ended.
enum class WaitOutcome : std::uint32_t { Pending = 0, Deadline, Aborted };

/// The first failed wait of a context. One writer: the thread that changed `state` from 0 to 1 fills the record and then stores 2 with release.
struct WaitRecord {
  std::uint32_t state;  ///< 0 = empty, 1 = being written, 2 = valid
  WaitOutcome outcome;
  WaitOperation operation;
  std::int32_t rank;    ///< who waited
  std::int32_t peer;    ///< for whom; -1 if not for one peer
  std::uint32_t block;  ///< block index of the waiter
  std::uint64_t expected;
  std::uint64_t seen;
  std::uint64_t waitedNanoseconds;
};

/// Host-visible memory of one context. `abort` is written by the host only; `expired` and `record` by the device side only.
struct WaitControl {
  alignas(64) std::uint32_t abort;    ///< non-zero: every wait of the context ends soon
  alignas(64) std::uint32_t expired;  ///< non-zero: a wait has ended without success, the others follow
  alignas(64) WaitRecord record;
};

}  // namespace mscclpp
