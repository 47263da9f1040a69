// Runs a plan symbolically over successive calls: finds deadlocks, accesses without order, and wrong results.
//
// Channels with one block at each end are queues, so that every order of execution has the same result and the same
// order relation; one order is simulated. Order is followed by vector clocks (as race detectors do: FastTrack, Flanagan
// and Freund, 2009). Waits on counters with several producers or consumers count only where every execution gives them
// the same signals.
//
// Packets order only what lies in messages that have them. A first simulation counts those that all messages have, and
// notes the pairs of accesses for which that is not enough. Each pair is then simulated with the packets that lie in
// all messages that have both accesses, and with nothing else of the data.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "mscclpp/plan/awaited_block.hpp"
#include "mscclpp/plan/simulated_counters.hpp"
#include "mscclpp/plan/simulated_data.hpp"

namespace mscclpp::plan {

/// One simulation of a plan that has no fault of structure.
class Simulation {
 public:
  /// iterations: for each call, how often its loops are run, each iteration on a part of its own of each chunk. pair:
  /// only the order of these accesses is checked; null: everything.
  constexpr Simulation(const Plan& plan, std::vector<std::int32_t> iterations, const CheckLimits& limits,
                       const PiecePair* pair = nullptr)
      : iterations_(std::move(iterations)),
        state_(plan, countOf(iterations_), limits, pair),
        data_(state_, iterations_),
        counters_(state_),
        running_(plan.ranks, 0) {}

  Simulation(const Simulation&) = delete;  // its parts refer to each other
  Simulation& operator=(const Simulation&) = delete;

  /// The first fault. Without `checkPositions`, Operation::position is not looked at.
  constexpr Fault run(bool checkPositions) {
    if (state_.fault) return state_.fault;
    checkPositions_ = checkPositions;
    counters_.checkConsumers();
    for (std::int32_t rank = 0; rank < state_.plan.ranks && !state_.fault; ++rank) startCall(rank);
    bool progress = true;
    while (progress && !state_.fault) {
      progress = false;
      for (std::int32_t block = 0; block < countOf(state_.blocks) && !state_.fault; ++block)
        while (!state_.fault && step(block)) progress = true;
      if (!progress && !state_.fault) progress = counters_.passCompetedWaits();
      state_.steps += state_.blocks.size();
    }
    if (!state_.fault) state_.checkEffort();
    if (!state_.fault && state_.pair == nullptr) checkDeadlock();
    if (!state_.fault && state_.pair == nullptr) counters_.checkEnd();
    return state_.fault;
  }

  /// After run(): for each operation of the plan the position of its data; -1: no data transfer.
  constexpr const std::vector<std::int32_t>& positions() const { return data_.positions(); }
  /// After run(): the accesses of the last call whose order may depend on packets that not all messages have.
  constexpr const std::vector<PiecePair>& openPairs() const { return state_.openPairs; }
  /// After run(): how much was done, see CheckLimits.
  constexpr std::uint64_t steps() const { return state_.steps; }

 private:
  /// The caller writes the inputs of its next call and launches it.
  constexpr void startCall(std::int32_t rank) {
    const RankPlan& of = state_.plan.rankPlans[rank];
    const std::int32_t call = state_.callerCalls[rank];
    Clock& caller = state_.callers[rank];
    data_.beginCall(rank);
    caller.enter(state_.callerActor(rank), 2 * call + 1);
    running_[rank] = of.blocks.count;
    for (std::int32_t i = 0; i < of.blocks.count; ++i) {
      SimulationState::BlockState& block = state_.blocks[of.blocks.first + i];
      block.call = call;
      block.next = 0;
      block.finished = false;
      block.clock.merge(caller);
      state_.forgetSnapshot(block);
    }
    if (of.blocks.count == 0) endCall(rank);
  }

  /// All blocks have finished: the caller reads the outputs, and may do what it likes with its buffers.
  constexpr void endCall(std::int32_t rank) {
    const RankPlan& of = state_.plan.rankPlans[rank];
    Clock& caller = state_.callers[rank];
    for (std::int32_t i = 0; i < of.blocks.count; ++i) caller.merge(state_.blocks[of.blocks.first + i].clock);
    data_.endCall(rank);
    caller.enter(state_.callerActor(rank), 2 * state_.callerCalls[rank] + 2);
    if (++state_.callerCalls[rank] < state_.calls && !state_.fault) startCall(rank);
  }

  /// Runs the next operation of a block; false: it waits, or the block has finished.
  constexpr bool step(std::int32_t index) {
    SimulationState::BlockState& block = state_.blocks[index];
    if (block.finished || state_.callerCalls[block.rank] >= state_.calls) return false;
    const Range operations = state_.plan.blocks[index].operations;
    if (block.next == operations.count) {
      state_.synchronise(index);
      block.finished = true;
      if (--running_[block.rank] == 0) endCall(block.rank);
      return true;
    }
    state_.checkEffort();
    if (state_.fault) return false;
    const Operation& operation = state_.plan.operations[operations.first + block.next];
    switch (operation.kind) {
      case OperationKind::Transfer:
        if (!data_.transfer(index, operation, checkPositions_)) return false;
        break;
      case OperationKind::Signal:
      case OperationKind::Release:
        for (std::int32_t k = 0; k < operation.references.count; ++k) counters_.raise(index, operation, k);
        break;
      case OperationKind::Wait:
      case OperationKind::Acquire:
        for (; block.reference < operation.references.count; ++block.reference)
          if (!counters_.take(index, operation, block.reference)) return false;
        block.reference = 0;
        break;
      case OperationKind::Flush:
        for (std::int32_t k = 0; k < operation.references.count; ++k)
          block.pending.merge(state_.push(index, state_.channelOf(index, operation, k)).clock);
        break;
      case OperationKind::Sync:
        state_.synchronise(index);
        break;
      case OperationKind::Barrier:
        if (!barrier(index, operation)) return false;
        break;
      case OperationKind::LoopBegin:
        block.iteration = 0;
        block.loopStart = block.next;
        break;
      case OperationKind::LoopEnd:
        if (++block.iteration < iterations_[block.call])
          block.next = block.loopStart;
        else
          block.iteration = -1;
        break;
    }
    ++block.next;
    return true;
  }

  constexpr bool barrier(std::int32_t index, const Operation& operation) {
    state_.blocks[index].arrived = true;
    const Range blocks = state_.plan.rankPlans[state_.rankOf(index)].blocks;
    std::vector<std::int32_t> arrived;
    for (std::int32_t i = blocks.first; i < blocks.first + blocks.count; ++i) {
      const SimulationState::BlockState& block = state_.blocks[i];
      const Range operations = state_.plan.blocks[i].operations;
      if (!block.arrived || block.next >= operations.count) continue;
      const Operation& at = state_.plan.operations[operations.first + block.next];
      if (at.kind == OperationKind::Barrier && at.index == operation.index) arrived.push_back(i);
    }
    if (countOf(arrived) < operation.blocks) return false;
    Clock all = state_.blocks[index].clock;
    for (const std::int32_t i : arrived) {
      state_.synchronise(i);
      all.merge(state_.blocks[i].clock);
      state_.steps += all.size();
    }
    for (const std::int32_t i : arrived) {
      state_.blocks[i].clock = all;
      state_.forgetSnapshot(state_.blocks[i]);
      state_.blocks[i].arrived = false;
      if (i != index) ++state_.blocks[i].next;
    }
    return true;
  }

  /// Reports a block that has not come to the end of its last call: one for which nobody is left to do what it waits
  /// for, which the first such block waits for, directly or through others; or else one of those that wait for each
  /// other.
  constexpr void checkDeadlock() {
    const AwaitedBlock awaited(state_, counters_);
    std::int32_t index = 0;
    while (index < countOf(state_.blocks) && !awaited.isStopped(index)) ++index;
    if (index == countOf(state_.blocks)) return;
    std::vector<bool> seen(state_.blocks.size());
    std::int32_t next = awaited.of(index);
    for (; next >= 0 && !seen[next]; next = awaited.of(index)) {
      seen[index] = true;
      index = next;
    }
    state_.report(FaultKind::Deadlock, index, state_.blocks[index].next);
    const Operation& operation = awaited.operationAt(index);
    if (SimulatedCounters::waits(operation.kind)) {
      state_.fault.index = state_.plan.references[operation.references.first + state_.blocks[index].reference];
      if (operation.kind == OperationKind::Wait)
        state_.fault.otherRank =
            state_.plan.channels[state_.channelOf(index, operation, state_.blocks[index].reference)].peer;
    } else if (operation.kind == OperationKind::Barrier) {
      state_.fault.index = operation.index;
    }
    if (next < 0) return;
    state_.fault.otherRank = state_.rankOf(next);
    state_.fault.otherBlock = next - state_.plan.rankPlans[state_.fault.otherRank].blocks.first;
    state_.fault.otherOperation = state_.blocks[next].next;
  }

  std::vector<std::int32_t> iterations_;
  SimulationState state_;
  SimulatedData data_;
  SimulatedCounters counters_;
  std::vector<std::int32_t> running_;  // blocks of each rank that have not finished their call
  bool checkPositions_ = true;
};

}  // namespace mscclpp::plan
