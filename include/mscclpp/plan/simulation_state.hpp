// What the parts of a simulation of a plan share: blocks, what each knows of the others, and the fault that was found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mscclpp/plan/clock.hpp"
#include "mscclpp/plan/contents.hpp"
#include "mscclpp/plan/fault.hpp"
#include "mscclpp/plan/piece.hpp"
#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/ports.hpp"

namespace mscclpp::plan {

/// What a check may cost: a plan that needs more is not checked (FaultKind::TooLarge).
struct CheckLimits {
  std::uint64_t steps = std::uint64_t{1} << 36;    ///< about as many comparisons of numbers: a minute
  std::uint64_t numbers = std::uint64_t{1} << 28;  ///< to be kept at a time: 1 GiB
};

/// The state of one simulation. Actors are blocks, ports, callers; and, when a pair is checked, certificates of blocks
/// and ports: that the reads of the earlier piece are complete, up to one. Packets made of what was read have them
/// already before the next Sync, or the end of the port's transfer.
struct SimulationState {
  struct BlockState {
    std::int32_t rank = 0;
    std::int32_t next = 0;  ///< operation
    std::int32_t call = 0;
    std::int32_t iteration = -1;
    std::int32_t loopStart = 0;
    bool arrived = false;  ///< at a barrier
    bool finished = false;
    Clock clock;    ///< as of its last Sync
    Clock pending;  ///< acquired since
    std::int32_t interval = 1;
    std::int32_t reference = 0;  ///< waits of its operation that are done
    std::int32_t snapshot = -1;  ///< of `clock`, if it has been taken
    /// The weak order of its next accesses to a piece, where packets of the piece have told more than `clock` has since
    /// the last Sync: the thread that reads a packet transfers the same bytes of the piece in all operations that
    /// divide chunks alike (see divisionOf()).
    struct Known {
      Piece piece;
      std::int32_t division = 0;
      std::vector<std::int32_t> weak;
    };
    std::vector<Known> known;
    std::int32_t certificates = 0;
    std::int32_t certified = 0;  ///< the division of certified reads since the last Sync; 0: none
  };

  constexpr SimulationState(const Plan& plan, std::int32_t calls, const CheckLimits& limits, const PiecePair* pair)
      : plan(plan), calls(calls), limits(limits), pair(pair) {
    for (const Operand& operand : plan.operands) hasPackets |= operand.form == Form::Packet;
    makeActors();
  }

  constexpr std::int32_t callerActor(std::int32_t rank) const { return countOf(plan.blocks) + ports.count() + rank; }
  /// Of a block or port.
  constexpr std::int32_t certificateActor(std::int32_t actor) const { return callerActor(plan.ranks) + actor; }

  constexpr void makeActors() {
    blocks.resize(plan.blocks.size());
    for (std::int32_t rank = 0; rank < plan.ranks; ++rank)
      for (std::int32_t i = 0; i < plan.rankPlans[rank].blocks.count; ++i)
        blocks[plan.rankPlans[rank].blocks.first + i].rank = rank;
    for (std::int32_t block = 0; block < countOf(blocks); ++block) {
      const Range operations = plan.blocks[block].operations;
      for (std::int32_t i = operations.first; i < operations.first + operations.count; ++i) notePorts(block, i);
    }
    const std::int32_t actors =
        pair == nullptr ? callerActor(plan.ranks) : certificateActor(countOf(blocks) + ports.count());
    const std::uint64_t clocks = 2 * plan.blocks.size() + static_cast<std::uint64_t>(ports.count() + plan.ranks);
    clockNumbers = 2 * clocks * static_cast<std::uint64_t>(actors);
    checkEffort();
    if (fault) return;
    ports.start(countOf(blocks), actors);
    for (BlockState& block : blocks) block.clock = block.pending = Clock(actors);
    callers.resize(plan.ranks, Clock(actors));
    callerCalls.resize(plan.ranks, 0);
  }

  constexpr void notePorts(std::int32_t block, std::int32_t number) {
    const Operation& operation = plan.operations[number];
    const std::int32_t first = plan.rankPlans[rankOf(block)].channels.first;
    if (operation.kind == OperationKind::Transfer) {
      const Operand& destination = plan.operands[operation.destinations.first];
      if (destination.access == Access::Port) ports.note(first + destination.channel, block);
    } else if (operation.kind == OperationKind::Signal || operation.kind == OperationKind::Flush) {
      for (std::int32_t k = 0; k < operation.references.count; ++k)
        if (isPort(channelOf(block, operation, k))) ports.note(channelOf(block, operation, k), block);
    }
  }
  constexpr bool isPort(std::int32_t channel) const { return plan.channels[channel].access == Access::Port; }

  constexpr std::int32_t rankOf(std::int32_t block) const { return blocks[block].rank; }
  constexpr std::int32_t channelOf(std::int32_t block, const Operation& operation, std::int32_t k) const {
    return plan.rankPlans[rankOf(block)].channels.first + plan.references[operation.references.first + k];
  }

  // ---- order

  constexpr void synchronise(std::int32_t index) {
    BlockState& block = blocks[index];
    block.clock.merge(block.pending);
    block.clock.enter(index, block.interval++);
    forgetSnapshot(block);
    block.known.clear();
    block.certified = 0;
  }

  constexpr Port& push(std::int32_t index, std::int32_t channel) {
    steps += blocks[index].clock.size();
    return ports.push(channel, index, blocks[index].clock, snapshots);
  }

  /// A snapshot of the block's clock, for one more user.
  constexpr std::int32_t snapshotOf(BlockState& block) {
    if (block.snapshot < 0) block.snapshot = snapshots.add(block.clock);
    return snapshots.keep(block.snapshot);
  }
  /// After each change of the block's clock.
  constexpr void forgetSnapshot(BlockState& block) {
    snapshots.drop(block.snapshot);
    block.snapshot = -1;
  }

  /// How an operation divides chunks among blocks and iterations.
  static constexpr std::int32_t divisionOf(const BlockState& block, const Operation& operation) {
    return block.iteration >= 0 ? -operation.shares : operation.shares;
  }
  /// Whether accesses to the piece are checked.
  constexpr bool isChecked(const Piece& piece) const {
    return pair == nullptr || piece == pair->earlier || piece == pair->later;
  }
  /// Whether all messages that are considered have bytes there.
  constexpr bool isPresent(const Piece& piece) const {
    return piece.isAlwaysPresent() || (pair != nullptr && pair->implies(piece));
  }
  constexpr void checkEffort() {
    if (steps > limits.steps) reportTooLarge(SizeLimit::Steps);
    if (clockNumbers + snapshots.numbers() + numbers > limits.numbers) reportTooLarge(SizeLimit::Numbers);
  }

  // ---- reports

  struct Location {
    BufferKind buffer = BufferKind::Input;
    std::int32_t rank = 0;
    std::int32_t chunk = 0;
    std::int32_t call = 0;
  };
  constexpr void locate(const Location& at) { location = at; }

  constexpr void reportTooLarge(SizeLimit limit) {
    if (!fault) fault = {.kind = FaultKind::TooLarge, .index = static_cast<std::int32_t>(limit)};
  }
  constexpr void report(FaultKind kind, std::int32_t block, std::int32_t operation) {
    if (fault) return;
    fault.kind = kind;
    setBlock(block, operation);
    fault.buffer = location.buffer;
    fault.bufferRank = location.rank;
    fault.chunk = location.chunk;
  }
  constexpr void setBlock(std::int32_t block, std::int32_t operation) {
    fault.rank = rankOf(block);
    fault.block = block - plan.rankPlans[fault.rank].blocks.first;
    fault.operation = operation;
    fault.call = blocks[block].call;
  }
  /// A fault at the location; `block` -1: found by the caller.
  constexpr void reportAt(FaultKind kind, std::int32_t block, std::int32_t rank) {
    if (fault) return;
    fault.kind = kind;
    if (block >= 0) setBlock(block, blocks[block].next);
    fault.rank = rank;
    fault.buffer = location.buffer;
    fault.bufferRank = location.rank;
    fault.chunk = location.chunk;
    fault.call = location.call;
  }
  constexpr void reportConflict(FaultKind kind, const DataAccess& access, const DataAccess& other) {
    if (fault) return;
    reportAt(kind, -1, access.block >= 0 ? rankOf(access.block) : access.actor - callerActor(0));
    if (access.block >= 0) setBlock(access.block, access.operation);
    if (access.block >= 0) fault.call = access.piece.call;  // the block may be further on
    fault.otherRank = other.block >= 0 ? rankOf(other.block) : other.actor - callerActor(0);
    if (other.block >= 0) {
      fault.otherBlock = other.block - plan.rankPlans[fault.otherRank].blocks.first;
      fault.otherOperation = other.operation;
    }
  }

  /// The order of a pair of accesses is missing. It is what packets may give that not all messages have: then the pair
  /// is noted, if it ends in the last call; those of the calls before are the same.
  constexpr void reportOrder(FaultKind kind, const DataAccess& access, const DataAccess& earlier) {
    const PiecePair found{earlier.piece, access.piece};
    if (!hasPackets || (pair != nullptr && found == *pair)) return reportConflict(kind, access, earlier);
    if (pair != nullptr || found.later.call != calls - 1) return;
    if (std::find(openPairs.begin(), openPairs.end(), found) == openPairs.end()) openPairs.push_back(found);
  }

  const Plan& plan;
  std::int32_t calls;
  CheckLimits limits;
  const PiecePair* pair;  ///< of accesses that alone are checked; null: all are
  bool hasPackets = false;

  std::vector<BlockState> blocks;
  Ports ports;
  std::vector<Clock> callers;
  std::vector<std::int32_t> callerCalls;  ///< which call each rank is in
  Snapshots snapshots;
  std::uint64_t steps = 0;         ///< that were made, see CheckLimits
  std::uint64_t clockNumbers = 0;  ///< of the clocks of blocks, ports and callers
  std::uint64_t numbers = 0;       ///< that are kept beside these and the snapshots
  Location location;               ///< of the cells that are looked at
  Fault fault;
  /// The accesses of the last call whose order may depend on packets that not all messages have.
  std::vector<PiecePair> openPairs;
};

}  // namespace mscclpp::plan
