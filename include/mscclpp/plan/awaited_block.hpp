// Which block of a simulated plan another one waits for: the cause of a deadlock.
#pragma once

#include <cstdint>

#include "mscclpp/plan/simulated_counters.hpp"
#include "mscclpp/plan/simulation_state.hpp"

namespace mscclpp::plan {

/// In a simulation that has stopped before its end: which blocks would have to go on.
class AwaitedBlock {
 public:
  constexpr AwaitedBlock(const SimulationState& state, const SimulatedCounters& counters)
      : state_(state), counters_(counters) {}

  /// Whether the block has not come to the end of its last call.
  constexpr bool isStopped(std::int32_t index) const {
    const SimulationState::BlockState& block = state_.blocks[index];
    return state_.callerCalls[block.rank] < state_.calls && !block.finished;
  }
  constexpr const Operation& operationAt(std::int32_t index) const {
    return state_.plan.operations[state_.plan.blocks[index].operations.first + state_.blocks[index].next];
  }

  /// A block that has stopped too, and that is to do what a stopped block waits for; or, if it is to do so in its next
  /// call, the one that keeps its rank from it. -1: what the block waits for is not done in this call any more.
  constexpr std::int32_t of(std::int32_t index) const {
    const std::int32_t call = state_.blocks[index].call;
    for (std::int32_t other = 0; other < countOf(state_.blocks); ++other) {
      const SimulationState::BlockState& block = state_.blocks[other];
      if (other == index || block.call > call || state_.callerCalls[block.rank] >= state_.calls) continue;
      if (isStopped(other) && isAwaited(index, other, block.next)) return other;
      if (block.call < call && isAwaited(index, other, 0)) return firstStopped(block.rank, index);
    }
    return -1;
  }

 private:
  /// Whether one of the operations of a block, from `first` on, does what another block waits for.
  constexpr bool isAwaited(std::int32_t waiting, std::int32_t index, std::int32_t first) const {
    const Range operations = state_.plan.blocks[index].operations;
    for (std::int32_t i = first; i < operations.count; ++i) {
      const Operation& operation = state_.plan.operations[operations.first + i];
      if (ends(waiting, index, operation, i > state_.blocks[index].next)) return true;
    }
    return false;
  }
  constexpr bool ends(std::int32_t waiting, std::int32_t index, const Operation& operation, bool isLater) const {
    const Operation& wait = operationAt(waiting);
    switch (wait.kind) {
      case OperationKind::Wait:
      case OperationKind::Acquire:
        return counters_.raisesFor(waiting, index, operation);
      case OperationKind::Barrier:  // at which the other block has not arrived
        return operation.kind == OperationKind::Barrier && operation.index == wait.index && isLater &&
               state_.rankOf(index) == state_.rankOf(waiting);
      case OperationKind::Transfer:
        return operation.kind == OperationKind::Transfer && sendsPackets(operation, wait);
      default:
        return false;
    }
  }
  /// Whether a transfer writes packets that another one reads.
  constexpr bool sendsPackets(const Operation& sender, const Operation& receiver) const {
    for (std::int32_t d = 0; d < sender.destinations.count; ++d) {
      const Operand& to = state_.plan.operands[sender.destinations.first + d];
      for (std::int32_t s = 0; s < receiver.sources.count; ++s) {
        const Operand& from = state_.plan.operands[receiver.sources.first + s];
        if (to.form == Form::Packet && from.form == Form::Packet && to.buffer == from.buffer && to.rank == from.rank &&
            to.first < from.first + receiver.chunks && from.first < to.first + sender.chunks)
          return true;
      }
    }
    return false;
  }
  constexpr std::int32_t firstStopped(std::int32_t rank, std::int32_t except) const {
    const Range blocks = state_.plan.rankPlans[rank].blocks;
    for (std::int32_t i = blocks.first; i < blocks.first + blocks.count; ++i)
      if (i != except && isStopped(i)) return i;
    return -1;
  }

  const SimulationState& state_;
  const SimulatedCounters& counters_;
};

}  // namespace mscclpp::plan
