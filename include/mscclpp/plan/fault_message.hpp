// A fault as a sentence.
#pragma once

#include <string>

#include "mscclpp/plan/fault.hpp"
#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

constexpr const char* nameOf(OperationKind kind) {
  constexpr const char* names[] = {"transfer", "signal",  "wait",    "flush",      "sync",
                                   "barrier",  "acquire", "release", "loop begin", "loop end"};
  return names[static_cast<int>(kind)];
}
constexpr const char* nameOf(BufferKind kind) {
  constexpr const char* names[] = {"input", "output", "scratch"};
  return names[static_cast<int>(kind)];
}

/// What is wrong, what to do about it, and where: rank, block, operation (with the line of the program, if the plan
/// knows it), chunk. Empty for FaultKind::None.
class FaultMessage {
 public:
  FaultMessage(const NamedPlan& plan, const Fault& fault) : plan_(plan), fault_(fault) {}

  std::string text() const {
    if (!fault_) return {};
    std::string text = plan_.name.empty() ? "plan: " : "plan '" + plan_.name + "': ";
    text += sentence();
    if (fault_.rank >= 0 && !namesCaller()) text += "; at " + place(fault_.rank, fault_.block, fault_.operation);
    return text + ".";
  }

 private:
  bool namesCaller() const { return fault_.block < 0 && fault_.call >= 0; }

  std::string sentence() const {
    const std::string other = fault_.otherBlock >= 0 ? place(fault_.otherRank, fault_.otherBlock, fault_.otherOperation)
                                                     : "the caller of rank " + std::to_string(fault_.otherRank);
    const std::string self = namesCaller() ? "the caller of rank " + std::to_string(fault_.rank) : "the operation";
    const std::string number = std::to_string(fault_.index);
    switch (fault_.kind) {
      case FaultKind::None:
        return {};
      case FaultKind::WrongHeader:
        return "its header is impossible (1 to " + std::to_string(maxPlanRanks) +
               " ranks, the root among them, 1 to 1024 threads, at least one chunk, an alignment that is a power of "
               "two, no more least than most bytes), or the chunks of a rank are not those of the collective";
      case FaultKind::WrongRange:
        return "a list of it refers to entries that do not exist";
      case FaultKind::RankOutOfRange:
        return "a rank is named that does not exist (0 to " + std::to_string(plan_.ranks - 1) + " do)";
      case FaultKind::ChunkOutOfRange:
        return chunk() + " lies outside of the buffer";
      case FaultKind::ChannelOutOfRange:
        return "the rank has no channel " + number;
      case FaultKind::WrongChannelKind:
        return "channel " + number + " is of a kind that does not serve this operation";
      case FaultKind::MissingChannelEnd:
        return "channel " + number + " of the rank has no other end: rank " + std::to_string(fault_.otherRank) +
               " has fewer channels of the kind to this rank";
      case FaultKind::SemaphoreOutOfRange:
        return "the rank has no device semaphore " + number;
      case FaultKind::WrongAccess:
        return chunk() + " is named as local, but is another rank's, or the other way round";
      case FaultKind::WrongPacketOperand:
        return chunk() + " cannot be packets: they lie in scratch, and are read by their own rank";
      case FaultKind::MixedForms:
        return chunk() + " holds packets in one operation and plain data in another; use another chunk";
      case FaultKind::WrongPortTransfer:
        return "a port channel writes one local source to one destination at its peer, both plain or both packets";
      case FaultKind::WrongSwitchTransfer:
        return "a switch channel serves one buffer of its members only";
      case FaultKind::WrongTransfer:
        return "a transfer needs a source and a destination, each of as many chunks, at least one";
      case FaultKind::WrongShare:
        return "the shares of a transfer are not numbered from 0 to their number, or the plan has too many different "
               "numbers of shares";
      case FaultKind::WrongBarrier:
        return "barrier " + number + " is not named by as many blocks as it says";
      case FaultKind::WrongLoop:
        return "a loop is inside another, has no end or no begin, or pieces of no bytes or of other bytes than another "
               "loop";
      case FaultKind::WrongExpectation:
        return "expectation " + number + " names chunks that do not exist, or the collective is not a custom one";
      case FaultKind::TooLarge:
        return tooLarge();
      case FaultKind::Deadlock:
        if (fault_.otherBlock >= 0)
          return "the block waits for ever: what it waits for comes after " + other +
                 ", where that block waits for this one, directly or through others";
        return "the block waits for ever" + (fault_.otherRank >= 0
                                                 ? " for a signal of rank " + std::to_string(fault_.otherRank) +
                                                       ", which sends it no more in this call"
                                                 : ", since nobody is left to end the wait in this call");
      case FaultKind::UnmatchedSignal:
        return "a signal to rank " + std::to_string(fault_.otherRank) + " for which no wait is left";
      case FaultKind::UnbalancedSemaphore:
        return "device semaphore " + number + " does not return to its initial value: acquire as often as you release";
      case FaultKind::AmbiguousCounter:
        return "several blocks signal, or wait for, " + counter() +
               ", and timing decides which signal goes where (another one: " + other +
               "); give each pair of blocks a channel of its own, or wait for all signals";
      case FaultKind::ReadBeforeWrite:
        return self + " reads " + chunk() + ", which " + other +
               " writes, and nothing orders the write before: signal after the write and wait before the read" + call();
      case FaultKind::WriteBeforeRead:
        return self + " overwrites " + chunk() + ", which " + other +
               " may still read: wait for a signal that follows the read" + call();
      case FaultKind::WriteBeforeWrite:
        return self + " and " + other + " write " + chunk() +
               " in no defined order: put a signal and a wait between them, or, within a block, a sync" + call();
      case FaultKind::Uninitialised:
        return self + " reads " + chunk() + ", which nobody has written" + call();
      case FaultKind::PacketWrittenTwice:
        return chunk() + " gets packets twice in one call (before: " + other +
               "), which their flags do not tell apart; use another chunk";
      case FaultKind::AccessBeforeCall:
        return "the operation accesses " + chunk() + " before the call of rank " + std::to_string(fault_.bufferRank) +
               " is known to have begun, while its caller may still use the buffer: wait for a signal of that rank "
               "first" +
               call();
      case FaultKind::AccessAfterCall:
        return (namesCaller() ? other : "the operation") + " may still access " + chunk() + " when the call of rank " +
               std::to_string(fault_.bufferRank) +
               " has ended and its caller uses the buffer: let that rank wait for a signal, or a flush, after the "
               "access" +
               call();
      case FaultKind::InputOverwritten:
        return chunk() + " is written, but the plan is not in place";
      case FaultKind::MixedPositions:
        return "the chunks of the transfer hold data of different positions in the message, so that their sizes may "
               "differ (" +
               chunk() + ")";
      case FaultKind::WrongPosition:
        return "the position of the data is not what the operation says: call setPositions()";
      case FaultKind::WrongResult:
        return chunk() + " does not hold what the collective defines; " +
               (fault_.otherBlock >= 0 ? other + " wrote it last" : std::string("no operation of this call wrote it")) +
               call();
    }
    return {};
  }

  /// What the fault's index means: of a wait or signal a channel of the rank, else a device semaphore.
  std::string counter() const {
    const RankPlan& rank = plan_.rankPlans[fault_.rank];
    const Range operations = plan_.blocks[rank.blocks.first + fault_.block].operations;
    const bool isKnown = fault_.operation >= 0 && fault_.operation < operations.count;
    const OperationKind kind =
        isKnown ? plan_.operations[operations.first + fault_.operation].kind : OperationKind::Sync;
    const std::string name = std::to_string(fault_.index);
    if (kind == OperationKind::Acquire || kind == OperationKind::Release) return "device semaphore " + name;
    if (fault_.index < 0 || fault_.index >= rank.channels.count) return "one counter";
    const Channel& channel = plan_.channels[rank.channels.first + fault_.index];
    return std::string(channel.access == Access::Port ? "port" : "memory") + " channel " + name +
           " between this rank and rank " + std::to_string(channel.peer);
  }
  std::string tooLarge() const {
    switch (static_cast<SizeLimit>(fault_.index)) {
      case SizeLimit::Blocks:
        return "a rank has " + std::to_string(plan_.rankPlans[fault_.rank].blocks.count) + " blocks; the most are " +
               std::to_string(maxRankBlocks) + ", since all are resident on a GPU at once";
      case SizeLimit::Chunks:
        return "it is too large to be checked: the buffers of all ranks have at most " + std::to_string(maxCells) +
               " chunks, times the shares, and " + std::to_string(loopIterations) +
               " in plans with loops; use fewer chunks or shares";
      case SizeLimit::Steps:
        return "it is too large to be checked in as many steps as are allowed (CheckLimits::steps); use fewer blocks, "
               "chunks or operations";
      case SizeLimit::Numbers:
        break;
    }
    return "it is too large to be checked in as much memory as is allowed (CheckLimits::numbers), which is about the "
           "square of the number of all ranks' blocks; use fewer blocks, or fewer ranks";
  }
  std::string chunk() const {
    return std::string(nameOf(fault_.buffer)) + " chunk " + std::to_string(fault_.chunk) + " of rank " +
           std::to_string(fault_.bufferRank);
  }
  std::string call() const {
    return fault_.call > 0 ? " (in call " + std::to_string(fault_.call + 1) + " of successive calls)" : std::string();
  }
  std::string place(std::int32_t rank, std::int32_t block, std::int32_t operation) const {
    std::string text = "rank " + std::to_string(rank);
    if (block < 0) return text;
    text += ", block " + std::to_string(block);
    const Range operations = plan_.blocks[plan_.rankPlans[rank].blocks.first + block].operations;
    if (operation < 0 || operation >= operations.count) return text;
    const Operation& at = plan_.operations[operations.first + operation];
    text += ", operation " + std::to_string(operation) + " (" + nameOf(at.kind) + ")";
    if (at.origin >= 0 && at.origin < countOf(plan_.origins)) text += ", made at " + plan_.origins[at.origin];
    return text;
  }

  const NamedPlan& plan_;
  const Fault& fault_;
};

inline std::string describe(const NamedPlan& plan, const Fault& fault) {
  return FaultMessage(plan, fault).text();
}
inline std::string describe(const Plan& plan, const Fault& fault) {
  NamedPlan named;
  static_cast<Plan&>(named) = plan;
  return describe(named, fault);
}

}  // namespace mscclpp::plan
