// The signals of a simulated plan: the counters of channels and device semaphores.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/plan/counter.hpp"
#include "mscclpp/plan/simulation_state.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

/// The counters of all ranks in a simulation. Waits on counters with several producers or consumers count only where
/// every execution gives them the same signals.
class SimulatedCounters {
 public:
  constexpr explicit SimulatedCounters(SimulationState& state) : state_(state) { makeCounters(); }

  /// Reports a counter for which several blocks wait: timing decides who gets which signal.
  constexpr void checkConsumers() {
    for (std::int32_t i = 0; i < countOf(counters_) && !state_.fault; ++i)
      if (counters_[i].consumers.size() > 1) reportCounter(counters_[i], counters_[i].consumers[0], -1, i);
  }

  /// Raises the counter that reference `k` of an operation of a block concerns.
  constexpr void raise(std::int32_t index, const Operation& operation, std::int32_t k) {
    SimulationState::BlockState& block = state_.blocks[index];
    std::int32_t clock = -1;
    if (operation.kind == OperationKind::Signal && state_.isPort(state_.channelOf(index, operation, k))) {
      Port& port =
          state_.push(index, state_.channelOf(index, operation, k));  // the proxy signals after what it has written
      clock = state_.snapshots.add(port.clock);
      state_.ports.finish(port, block.interval, state_.snapshots);
    }
    if (clock < 0) clock = state_.snapshotOf(block);
    counters_[counterOf(index, operation, k)].raises.push_back({clock, operation.relaxed, index, block.next});
  }

  /// One wait on a counter with at most one producer and one consumer; false: it has to wait, or there are more.
  constexpr bool take(std::int32_t index, const Operation& operation, std::int32_t k) {
    Counter& counter = counters_[counterOf(index, operation, k)];
    if (!counter.isSimple() || counter.value() <= 0) return false;
    const std::int32_t number = counter.taken++ - counter.initial;
    if (number < 0) return true;
    acquire(state_.blocks[index], operation, counter.raises[number]);
    state_.snapshots.drop(counter.raises[number].clock);
    return true;
  }

  /// No block can go on but by waits on counters with several producers or consumers: all raises that do not depend on
  /// such waits are done. Lets pass those for which there are enough. A wait that gets all raises there are is ordered
  /// after all of them, if it turns out at the end that no other could have come before; else after none.
  constexpr bool passCompetedWaits() {
    bool progress = false;
    for (std::int32_t number = 0; number < countOf(counters_) && !progress; ++number) {
      Counter& counter = counters_[number];
      if (counter.isSimple()) continue;
      std::vector<std::int32_t> waiting;
      for (const std::int32_t index : counter.consumers)
        if (waitsFor(index, number)) waiting.push_back(index);
      const std::int32_t count = countOf(waiting);
      if (count == 0 || counter.value() < count) continue;
      const bool full = counter.value() == count;
      for (const std::int32_t index : waiting) {
        SimulationState::BlockState& block = state_.blocks[index];
        const Operation& operation = state_.plan.operations[state_.plan.blocks[index].operations.first + block.next];
        ++counter.taken;
        if (full) {
          for (const Counter::Raise& raise : counter.raises) acquire(block, operation, raise);
          counter.fullWaits.push_back({index, block.next, block.interval, countOf(counter.raises)});
        } else if (counter.consumers.size() > 1) {
          reportCounter(counter, index, block.next, number);
        }
        ++block.reference;
      }
      progress = true;
    }
    return progress;
  }

  /// Reports what is left over after the last call.
  constexpr void checkEnd() {
    for (std::int32_t number = 0; number < countOf(counters_); ++number) {
      const Counter& counter = counters_[number];
      for (const Counter::FullWait& wait : counter.fullWaits)
        for (std::int32_t i = wait.raises; i < countOf(counter.raises); ++i)
          if (state_.snapshots[counter.raises[i].clock].weak[wait.block] < wait.interval)
            return reportCounter(counter, wait.block, wait.operation, number);
      if (counter.value() == counter.initial) continue;
      if (number >= countOf(state_.plan.channels)) {
        const std::int32_t block = counter.raises.empty() ? counter.consumers[0] : counter.raises.back().block;
        state_.report(FaultKind::UnbalancedSemaphore, block, -1);
        state_.fault.index =
            number - countOf(state_.plan.channels) - state_.plan.rankPlans[state_.rankOf(block)].semaphores.first;
      } else {
        state_.report(FaultKind::UnmatchedSignal, counter.raises.back().block, counter.raises.back().operation);
        state_.fault.otherRank = state_.plan.channels[ends_[number]].peer;
      }
      return;
    }
  }

  static constexpr bool waits(OperationKind kind) {
    return kind == OperationKind::Wait || kind == OperationKind::Acquire;
  }

  /// Whether an operation of a block raises the counter for which another block waits.
  constexpr bool raisesFor(std::int32_t waiting, std::int32_t index, const Operation& operation) const {
    if (!raises(operation.kind)) return false;
    for (std::int32_t k = 0; k < operation.references.count; ++k)
      if (waitsFor(waiting, counterOf(index, operation, k))) return true;
    return false;
  }

 private:
  constexpr void makeCounters() {
    ends_ = otherEnds(state_.plan);
    counters_.resize(state_.plan.channels.size() + state_.plan.references.size());
    for (const RankPlan& rank : state_.plan.rankPlans)
      for (std::int32_t i = 0; i < rank.semaphores.count; ++i)
        counters_[semaphoreCounter(rank, i)].initial = state_.plan.references[rank.semaphores.first + i];
    for (std::int32_t block = 0; block < countOf(state_.plan.blocks); ++block) {
      const Range operations = state_.plan.blocks[block].operations;
      for (std::int32_t i = 0; i < operations.count; ++i) {
        const Operation& operation = state_.plan.operations[operations.first + i];
        if (!usesCounters(operation.kind)) continue;
        for (std::int32_t k = 0; k < operation.references.count; ++k) {
          Counter& counter = counters_[counterOf(block, operation, k)];
          Counter::note(raises(operation.kind) ? counter.producers : counter.consumers, block);
        }
      }
    }
  }

  static constexpr bool raises(OperationKind kind) {
    return kind == OperationKind::Signal || kind == OperationKind::Release;
  }
  static constexpr bool usesCounters(OperationKind kind) { return raises(kind) || waits(kind); }
  constexpr std::int32_t semaphoreCounter(const RankPlan& rank, std::int32_t semaphore) const {
    return countOf(state_.plan.channels) + rank.semaphores.first + semaphore;
  }
  /// The counter that reference `k` of an operation of a block concerns. Those of channels have the number of the
  /// receiving end.
  constexpr std::int32_t counterOf(std::int32_t block, const Operation& operation, std::int32_t k) const {
    const RankPlan& rank = state_.plan.rankPlans[state_.rankOf(block)];
    const std::int32_t reference = state_.plan.references[operation.references.first + k];
    if (operation.kind == OperationKind::Acquire || operation.kind == OperationKind::Release)
      return semaphoreCounter(rank, reference);
    const std::int32_t channel = rank.channels.first + reference;
    return operation.kind == OperationKind::Signal ? ends_[channel] : channel;
  }
  constexpr void acquire(SimulationState::BlockState& block, const Operation& operation, const Counter::Raise& raise) {
    state_.steps += block.clock.size();
    if (operation.relaxed || raise.relaxed)
      block.pending.mergeWeak(state_.snapshots[raise.clock]);
    else
      block.pending.merge(state_.snapshots[raise.clock]);
  }

  constexpr bool waitsFor(std::int32_t index, std::int32_t counter) const {
    const SimulationState::BlockState& block = state_.blocks[index];
    const Range operations = state_.plan.blocks[index].operations;
    if (block.finished || block.next >= operations.count || state_.callerCalls[block.rank] >= state_.calls)
      return false;
    const Operation& operation = state_.plan.operations[operations.first + block.next];
    return waits(operation.kind) && block.reference < operation.references.count &&
           counterOf(index, operation, block.reference) == counter;
  }

  /// The first operation of a block that raises a counter, or waits for it.
  constexpr std::int32_t firstUse(std::int32_t block, std::int32_t number) const {
    const Range operations = state_.plan.blocks[block].operations;
    for (std::int32_t i = 0; i < operations.count; ++i) {
      const Operation& operation = state_.plan.operations[operations.first + i];
      if (!usesCounters(operation.kind)) continue;
      for (std::int32_t k = 0; k < operation.references.count; ++k)
        if (counterOf(block, operation, k) == number) return i;
    }
    return -1;
  }
  /// operation: of the block; -1: its first use of the counter.
  constexpr void reportCounter(const Counter& counter, std::int32_t index, std::int32_t operation,
                               std::int32_t number) {
    if (state_.fault) return;
    state_.report(FaultKind::AmbiguousCounter, index, operation < 0 ? firstUse(index, number) : operation);
    state_.fault.index =
        number < countOf(state_.plan.channels)
            ? number - state_.plan.rankPlans[state_.rankOf(index)].channels.first
            : number - countOf(state_.plan.channels) - state_.plan.rankPlans[state_.rankOf(index)].semaphores.first;
    for (const auto& blocks : {counter.producers, counter.consumers})
      for (const std::int32_t other : blocks)
        if (other != index && state_.fault.otherBlock < 0) {
          state_.fault.otherRank = state_.rankOf(other);
          state_.fault.otherBlock = other - state_.plan.rankPlans[state_.rankOf(other)].blocks.first;
          state_.fault.otherOperation = firstUse(other, number);
        }
  }

  SimulationState& state_;
  std::vector<std::int32_t> ends_;
  std::vector<Counter> counters_;
};

}  // namespace mscclpp::plan
