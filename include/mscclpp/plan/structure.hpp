// Whether a plan is well formed: all that it names exists, and operands suit their operations.
#pragma once

#include <algorithm>
#include <vector>

#include "mscclpp/plan/cells.hpp"
#include "mscclpp/plan/fault.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// The ranks that a plan has at most.
inline constexpr int maxPlanRanks = 4096;
/// The blocks that a rank has at most: all are resident on a GPU at once.
inline constexpr int maxRankBlocks = 1024;
/// The cells of the buffers of all ranks that are followed; a plan with more is not checked.
inline constexpr std::int64_t maxCells = std::int64_t{1} << 22;
/// Iterations of a loop that are followed.
inline constexpr int loopIterations = 3;

/// For each channel of the plan, the index (in Plan::channels) of its other end, or -1; -1 for switch channels.
constexpr std::vector<std::int32_t> otherEnds(const Plan& plan) {
  struct End {
    std::int32_t rank, peer, access, number;  // number: among the channels of the kind to the peer
    std::int32_t channel;
    constexpr bool operator<(const End& other) const {
      if (rank != other.rank) return rank < other.rank;
      if (peer != other.peer) return peer < other.peer;
      if (access != other.access) return access < other.access;
      return number < other.number;
    }
  };
  std::vector<End> ends;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    const Range channels = plan.rankPlans[rank].channels;
    std::vector<std::int32_t> numbers(2 * static_cast<std::size_t>(plan.ranks), 0);
    for (std::int32_t i = channels.first; i < channels.first + channels.count; ++i) {
      const Channel& channel = plan.channels[i];
      if (channel.access == Access::Switch) continue;
      const bool isPort = channel.access == Access::Port;
      ends.push_back({rank, channel.peer, isPort, numbers[2 * channel.peer + isPort]++, i});
    }
  }
  std::sort(ends.begin(), ends.end());
  std::vector<std::int32_t> found(plan.channels.size(), -1);
  for (const End& end : ends) {
    const End wanted{end.peer, end.rank, end.access, end.number, 0};
    const auto other = std::lower_bound(ends.begin(), ends.end(), wanted);
    if (other != ends.end() && !(wanted < *other)) found[end.channel] = other->channel;
  }
  return found;
}

/// Finds the first fault in the form of a plan. A plan without one can be simulated and executed without an access
/// outside of its arrays and buffers.
class StructureCheck {
 public:
  constexpr explicit StructureCheck(const Plan& plan) : plan_(plan) {}

  constexpr Fault run() {
    checkHeader();
    if (fault_) return fault_;
    for (std::int32_t rank = 0; rank < plan_.ranks && !fault_; ++rank) checkRank(rank);
    if (!fault_) checkSize();
    if (fault_) return fault_;
    checkChannels();
    for (std::int32_t rank = 0; rank < plan_.ranks && !fault_; ++rank) checkOperations(rank);
    if (!fault_) checkExpectations();
    if (!fault_) checkSize();
    return fault_;
  }

 private:
  constexpr void report(FaultKind kind, std::int32_t index = -1) {
    if (fault_) return;
    fault_ = where_;
    fault_.kind = kind;
    fault_.index = index;
  }
  constexpr void reportOperand(FaultKind kind, const Operand& operand) {
    if (fault_) return;
    report(kind);
    fault_.buffer = operand.buffer;
    fault_.bufferRank = operand.rank;
    fault_.chunk = operand.first;
  }
  template <class List>
  static constexpr bool contains(const List& list, Range range) {
    return range.first >= 0 && range.count >= 0 && range.first <= countOf(list) - range.count;
  }
  constexpr std::int32_t chunksOf(std::int32_t rank, BufferKind buffer) const {
    const RankPlan& of = plan_.rankPlans[rank];
    return buffer == BufferKind::Input ? of.inputChunks
                                       : (buffer == BufferKind::Output ? of.outputChunks : of.scratchChunks);
  }

  constexpr void checkHeader() {
    const bool possible = plan_.ranks > 0 && plan_.ranks <= maxPlanRanks && countOf(plan_.rankPlans) == plan_.ranks &&
                          plan_.root >= 0 && plan_.root < plan_.ranks && plan_.chunksPerPart > 0 &&
                          plan_.threadsPerBlock > 0 && plan_.threadsPerBlock <= 1024 && plan_.alignment > 0 &&
                          (plan_.alignment & (plan_.alignment - 1)) == 0 && plan_.minBytes <= plan_.maxBytes &&
                          (plan_.collective != CollectiveKind::Custom || plan_.chunksPerPart == 1);
    if (!possible) report(FaultKind::WrongHeader);
  }

  constexpr void checkRank(std::int32_t rank) {
    where_ = {.rank = rank};
    const RankPlan& of = plan_.rankPlans[rank];
    if (!contains(plan_.blocks, of.blocks) || !contains(plan_.channels, of.channels) ||
        !contains(plan_.references, of.semaphores))
      return report(FaultKind::WrongRange);
    const bool custom = plan_.collective == CollectiveKind::Custom;
    if (of.inputChunks < 0 || of.outputChunks < 0 || of.scratchChunks < 0 ||
        (!custom && (of.inputChunks != inputChunksOf(plan_, rank) || of.outputChunks != outputChunksOf(plan_, rank))))
      return report(FaultKind::WrongHeader);
    if (of.blocks.count > maxRankBlocks) return report(FaultKind::TooLarge, static_cast<int>(SizeLimit::Blocks));
    for (std::int32_t block = 0; block < of.blocks.count; ++block) {
      where_.block = block;
      const Range operations = plan_.blocks[of.blocks.first + block].operations;
      if (!contains(plan_.operations, operations)) return report(FaultKind::WrongRange);
      for (std::int32_t i = 0; i < operations.count; ++i) {
        where_.operation = i;
        const Operation& operation = plan_.operations[operations.first + i];
        if (!contains(plan_.operands, operation.sources) || !contains(plan_.operands, operation.destinations) ||
            !contains(plan_.references, operation.references))
          return report(FaultKind::WrongRange);
      }
    }
  }

  constexpr void checkChannels() {
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
      where_ = {.rank = rank};
      const Range channels = plan_.rankPlans[rank].channels;
      for (std::int32_t i = 0; i < channels.count; ++i) {
        const Channel& channel = plan_.channels[channels.first + i];
        if (channel.access == Access::Local) return report(FaultKind::WrongChannelKind, i);
        if (channel.access == Access::Switch) {
          if (!contains(plan_.references, channel.members)) return report(FaultKind::WrongRange, i);
          bool isMember = false;
          for (std::int32_t k = 0; k < channel.members.count; ++k) {
            const std::int32_t member = plan_.references[channel.members.first + k];
            if (member < 0 || member >= plan_.ranks) return report(FaultKind::RankOutOfRange, i);
            isMember |= member == rank;
          }
          if (!isMember) return report(FaultKind::WrongSwitchTransfer, i);
        } else if (channel.peer < 0 || channel.peer >= plan_.ranks || channel.peer == rank) {
          return report(FaultKind::RankOutOfRange, i);
        }
      }
    }
    const std::vector<std::int32_t> ends = otherEnds(plan_);
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
      where_ = {.rank = rank};
      const Range channels = plan_.rankPlans[rank].channels;
      for (std::int32_t i = 0; i < channels.count; ++i) {
        if (plan_.channels[channels.first + i].access == Access::Switch || ends[channels.first + i] >= 0) continue;
        where_.otherRank = plan_.channels[channels.first + i].peer;
        return report(FaultKind::MissingChannelEnd, i);
      }
    }
  }

  constexpr void checkOperations(std::int32_t rank) {
    const RankPlan& of = plan_.rankPlans[rank];
    forms_.resize(plan_.ranks);
    forms_[rank].resize(of.scratchChunks, 0);
    std::vector<std::int32_t> barriers;  // of this rank: how many blocks name barrier i
    std::vector<std::int32_t> barrierBlocks;
    for (std::int32_t block = 0; block < of.blocks.count; ++block) {
      where_ = {.rank = rank, .block = block};
      const Range operations = plan_.blocks[of.blocks.first + block].operations;
      bool inLoop = false;
      std::vector<bool> named;
      for (std::int32_t i = 0; i < operations.count && !fault_; ++i) {
        where_.operation = i;
        const Operation& operation = plan_.operations[operations.first + i];
        switch (operation.kind) {
          case OperationKind::Transfer:
            checkTransfer(rank, operation, inLoop);
            break;
          case OperationKind::Signal:
          case OperationKind::Wait:
          case OperationKind::Flush:
            checkReferences(rank, operation);
            break;
          case OperationKind::Acquire:
          case OperationKind::Release:
            for (std::int32_t k = 0; k < operation.references.count; ++k) {
              const std::int32_t semaphore = plan_.references[operation.references.first + k];
              if (semaphore < 0 || semaphore >= of.semaphores.count)
                return report(FaultKind::SemaphoreOutOfRange, semaphore);
            }
            break;
          case OperationKind::Barrier:
            if (operation.index < 0 || operation.index >= 65536 || operation.blocks <= 0)
              return report(FaultKind::WrongBarrier, operation.index);
            if (operation.index >= countOf(barriers)) {
              barriers.resize(operation.index + 1, 0);
              barrierBlocks.resize(operation.index + 1, operation.blocks);
            }
            if (barriers[operation.index] == 0) barrierBlocks[operation.index] = operation.blocks;
            if (barrierBlocks[operation.index] != operation.blocks)
              return report(FaultKind::WrongBarrier, operation.index);
            if (operation.index >= countOf(named)) named.resize(operation.index + 1, false);
            if (!named[operation.index]) ++barriers[operation.index];
            named[operation.index] = true;
            break;
          case OperationKind::LoopBegin:
            if (unitBytes_ == 0) unitBytes_ = operation.unitBytes;
            if (inLoop || operation.unitBytes == 0 || operation.unitBytes > std::uint64_t{1} << 62 ||
                operation.unitBytes != unitBytes_)
              return report(FaultKind::WrongLoop);
            inLoop = true;
            break;
          case OperationKind::LoopEnd:
            if (!inLoop) return report(FaultKind::WrongLoop);
            inLoop = false;
            break;
          case OperationKind::Sync:
            break;
        }
      }
      if (inLoop) return report(FaultKind::WrongLoop);
    }
    where_ = {.rank = rank};
    for (std::int32_t i = 0; i < countOf(barriers); ++i)
      if (barriers[i] > 0 && barriers[i] != barrierBlocks[i]) return report(FaultKind::WrongBarrier, i);
  }

  constexpr void checkReferences(std::int32_t rank, const Operation& operation) {
    const Range channels = plan_.rankPlans[rank].channels;
    for (std::int32_t k = 0; k < operation.references.count; ++k) {
      const std::int32_t channel = plan_.references[operation.references.first + k];
      if (channel < 0 || channel >= channels.count) return report(FaultKind::ChannelOutOfRange, channel);
      const Access access = plan_.channels[channels.first + channel].access;
      if (access == Access::Switch || (operation.kind == OperationKind::Flush && access != Access::Port))
        return report(FaultKind::WrongChannelKind, channel);
    }
  }

  constexpr void checkTransfer(std::int32_t rank, const Operation& operation, bool inLoop) {
    if (operation.chunks <= 0 || operation.sources.count <= 0 || operation.destinations.count <= 0)
      return report(FaultKind::WrongTransfer);
    if (operation.position < 0 || operation.position >= plan_.chunksPerPart) return report(FaultKind::WrongPosition);
    if (operation.shares < 1 || operation.share < 0 || operation.share >= operation.shares)
      return report(FaultKind::WrongShare);
    if (!layout_.divide(inLoop, operation.shares)) return report(FaultKind::WrongShare);
    bool throughPort = false;
    for (std::int32_t i = 0; i < operation.sources.count; ++i)
      checkOperand(rank, operation, plan_.operands[operation.sources.first + i], false, throughPort);
    for (std::int32_t i = 0; i < operation.destinations.count; ++i)
      checkOperand(rank, operation, plan_.operands[operation.destinations.first + i], true, throughPort);
    if (fault_ || !throughPort) return;
    const Operand& source = plan_.operands[operation.sources.first];
    if (operation.sources.count != 1 || operation.destinations.count != 1 || source.access != Access::Local ||
        source.form != plan_.operands[operation.destinations.first].form)
      report(FaultKind::WrongPortTransfer);
  }

  constexpr void checkOperand(std::int32_t rank, const Operation& operation, const Operand& operand, bool isDestination,
                              bool& throughPort) {
    if (fault_) return;
    if (operand.rank < 0 || operand.rank >= plan_.ranks) return reportOperand(FaultKind::RankOutOfRange, operand);
    const bool own = operand.rank == rank;
    const bool local = operand.access == Access::Local || operand.access == Access::Switch;
    if (own != local) return reportOperand(FaultKind::WrongAccess, operand);
    if (operand.first < 0 || operand.first > chunksOf(operand.rank, operand.buffer) - operation.chunks)
      return reportOperand(FaultKind::ChunkOutOfRange, operand);
    if (operand.access == Access::Port || operand.access == Access::Switch) {
      const Range channels = plan_.rankPlans[rank].channels;
      if (operand.channel < 0 || operand.channel >= channels.count)
        return report(FaultKind::ChannelOutOfRange, operand.channel);
      const Channel& channel = plan_.channels[channels.first + operand.channel];
      if (channel.access != operand.access) return report(FaultKind::WrongChannelKind, operand.channel);
      if (operand.access == Access::Port) {
        throughPort = true;
        if (!isDestination || channel.peer != operand.rank) return reportOperand(FaultKind::WrongPortTransfer, operand);
      } else {
        if (channel.buffer != operand.buffer) return reportOperand(FaultKind::WrongSwitchTransfer, operand);
        for (std::int32_t k = 0; k < channel.members.count; ++k) {
          const std::int32_t member = plan_.references[channel.members.first + k];
          if (operand.first > chunksOf(member, operand.buffer) - operation.chunks)
            return reportOperand(FaultKind::ChunkOutOfRange, operand);
        }
      }
    }
    const bool packets = operand.form == Form::Packet;
    if (packets && (operand.buffer != BufferKind::Scratch || (operand.access == Access::Switch && !isDestination) ||
                    (operand.access == Access::Memory && !isDestination)))
      return reportOperand(FaultKind::WrongPacketOperand, operand);
    if (operand.buffer != BufferKind::Scratch) return;
    const auto note = [&](std::int32_t owner) {
      forms_[owner].resize(plan_.rankPlans[owner].scratchChunks, 0);
      for (std::int32_t i = 0; i < operation.chunks; ++i) {
        char& form = forms_[owner][operand.first + i];
        const char now = packets ? 2 : 1;
        if (form != 0 && form != now) return reportOperand(FaultKind::MixedForms, operand);
        form = now;
      }
    };
    if (operand.access != Access::Switch) return note(operand.rank);
    const Channel& channel = plan_.channels[plan_.rankPlans[rank].channels.first + operand.channel];
    for (std::int32_t k = 0; k < channel.members.count; ++k) note(plan_.references[channel.members.first + k]);
  }

  constexpr void checkExpectations() {
    where_ = {};
    for (std::int32_t i = 0; i < countOf(plan_.expectations); ++i) {
      const Expectation& expectation = plan_.expectations[i];
      bool exists = plan_.collective == CollectiveKind::Custom && expectation.rank >= 0 &&
                    expectation.rank < plan_.ranks && contains(plan_.references, expectation.contributions) &&
                    expectation.contributions.count % 2 == 0;
      exists = exists && expectation.chunk >= 0 && expectation.chunk < plan_.rankPlans[expectation.rank].outputChunks;
      for (std::int32_t k = 0; exists && k < expectation.contributions.count; k += 2) {
        const std::int32_t rank = plan_.references[expectation.contributions.first + k];
        const std::int32_t chunk = plan_.references[expectation.contributions.first + k + 1];
        exists = rank >= 0 && rank < plan_.ranks && chunk >= 0 && chunk < plan_.rankPlans[rank].inputChunks;
      }
      if (!exists) return report(FaultKind::WrongExpectation, i);
    }
  }

  constexpr void checkSize() {
    where_ = {};
    std::int64_t chunks = 0;
    for (const RankPlan& rank : plan_.rankPlans)
      chunks += std::int64_t{rank.inputChunks} + rank.outputChunks +
                (plan_.doubleScratch ? 2 : 1) * std::int64_t{rank.scratchChunks};
    if (chunks > maxCells / (layout_.cells() * (unitBytes_ == 0 ? 1 : loopIterations)))
      report(FaultKind::TooLarge, static_cast<int>(SizeLimit::Chunks));
  }

  const Plan& plan_;
  Fault fault_;
  Fault where_;
  CellLayout layout_{1};
  std::uint64_t unitBytes_ = 0;           // of all loops
  std::vector<std::vector<char>> forms_;  // of each scratch chunk of each rank: 0 unknown, 1 plain, 2 packets
};

}  // namespace mscclpp::plan
