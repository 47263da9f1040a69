// What is wrong with a plan: kinds of faults, and where one was found.
#pragma once

#include <cstdint>

#include "mscclpp/plan/operation.hpp"

namespace mscclpp::plan {

enum class FaultKind : std::uint8_t {
  None,

  // The form of the plan (plan/structure.hpp).
  WrongHeader,          ///< numbers of ranks, chunks, threads or bytes that are impossible
  WrongRange,           ///< a range that lies outside its array, or a rank without a plan
  RankOutOfRange,       ///< an operand or a channel names a rank that does not exist
  ChunkOutOfRange,      ///< an operand lies outside its buffer
  ChannelOutOfRange,    ///< a channel that the rank does not have
  WrongChannelKind,     ///< a channel of a kind that does not serve the operation
  MissingChannelEnd,    ///< the peer has no channel that is the other end
  SemaphoreOutOfRange,  ///< a device semaphore that the rank does not have
  WrongAccess,          ///< a local operand in another rank's buffer, a remote one in the own
  WrongPacketOperand,   ///< packets outside scratch, or read from a peer or a switch
  MixedForms,           ///< a scratch chunk that holds packets and plain data
  WrongPortTransfer,    ///< other than one local source and one destination of the same form
  WrongSwitchTransfer,  ///< through a switch channel of another buffer, or of which the rank is no member
  WrongTransfer,        ///< no chunks, no source or no destination
  WrongShare,           ///< share outside of shares, or more combinations of shares than the check can follow
  WrongBarrier,         ///< a barrier that another number of blocks names than it says
  WrongLoop,            ///< loops that are nested, not closed, or of pieces of zero or of different bytes
  WrongExpectation,     ///< an expectation that names chunks which do not exist
  TooLarge,             ///< too many chunks, or too many operations, to be checked

  // The order of its operations (plan/simulation.hpp).
  Deadlock,             ///< the block waits for ever
  UnmatchedSignal,      ///< signals of a call that nobody waits for
  UnbalancedSemaphore,  ///< a device semaphore that does not return to its initial value
  AmbiguousCounter,     ///< which signals a wait gets, or which block gets them, depends on timing
  ReadBeforeWrite,      ///< a read of data that is not ordered after its write
  WriteBeforeRead,      ///< a write that is not ordered after a read of the old data
  WriteBeforeWrite,     ///< two writes without order
  Uninitialised,        ///< a read of data that nobody wrote
  PacketWrittenTwice,   ///< packets of the same call in one place: the flags do not tell them apart
  AccessBeforeCall,     ///< an access to a peer's input or output that is not ordered after the begin of its call
  AccessAfterCall,      ///< an access to a peer's input or output that is not ordered before the end of its call
  InputOverwritten,     ///< a write to the input of a call that is not in place

  // Its data.
  MixedPositions,  ///< chunks of different positions in the message in one transfer: their sizes may differ
  WrongPosition,   ///< Operation::position is not that of the data: see setPositions()
  WrongResult      ///< an output that does not hold what the collective defines
};

/// What of a plan is too large (FaultKind::TooLarge).
enum class SizeLimit : std::uint8_t {
  Blocks,   ///< of a rank: maxRankBlocks
  Chunks,   ///< of all ranks: maxCells
  Steps,    ///< CheckLimits::steps
  Numbers,  ///< CheckLimits::numbers
};

/// The first fault found, and where. Members that say nothing about a kind are -1.
struct Fault {
  FaultKind kind = FaultKind::None;
  std::int32_t rank = -1;
  std::int32_t block = -1;      ///< of the rank
  std::int32_t operation = -1;  ///< of the block
  // What it is in conflict with.
  std::int32_t otherRank = -1;
  std::int32_t otherBlock = -1;
  std::int32_t otherOperation = -1;
  // The chunk concerned.
  BufferKind buffer = BufferKind::Input;
  std::int32_t bufferRank = -1;
  std::int32_t chunk = -1;
  std::int32_t index = -1;  ///< the channel, semaphore, barrier or operand concerned; of TooLarge: the SizeLimit
  std::int32_t call = -1;   ///< in which of three successive calls

  constexpr explicit operator bool() const { return kind != FaultKind::None; }
  friend constexpr bool operator==(const Fault&, const Fault&) = default;
};

}  // namespace mscclpp::plan
