// Runs a plan symbolically over successive calls: finds deadlocks, accesses without order, and wrong results.
//
// Channels with one block at each end are queues, so that every order of execution has the same result and the same
// order relation; one order is simulated. Order is followed by vector clocks (as race detectors do: FastTrack, Flanagan
// and Freund, 2009). Waits on counters with several producers or consumers count only where every execution gives them
// the same signals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "mscclpp/plan/clock.hpp"
#include "mscclpp/plan/contents.hpp"
#include "mscclpp/plan/counter.hpp"
#include "mscclpp/plan/fault.hpp"
#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

/// One simulation of a plan that has no fault of structure.
class Simulation {
 public:
  /// Loops are run `iterations` times, each iteration on a part of its own of each chunk.
  constexpr Simulation(const Plan& plan, std::int32_t calls, std::int32_t iterations)
      : plan_(plan),
        calls_(calls),
        iterations_(iterations),
        sharesPerIteration_(leastCommonShares(plan)),
        values_(plan),
        contents_(plan, iterations * sharesPerIteration_),
        positions_(plan.operations.size(), -1) {
    makeActors();
    makeCounters();
  }

  /// The first fault. Without `checkPositions`, Operation::position is not looked at.
  constexpr Fault run(bool checkPositions) {
    checkPositions_ = checkPositions;
    for (std::int32_t i = 0; i < countOf(counters_) && !fault_; ++i)  // timing decides who gets which signal
      if (counters_[i].consumers.size() > 1) reportCounter(counters_[i], counters_[i].consumers[0], -1, i);
    if (fault_) return fault_;
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) startCall(rank);
    bool progress = true;
    while (progress && !fault_) {
      progress = false;
      for (std::int32_t block = 0; block < countOf(blocks_) && !fault_; ++block)
        while (!fault_ && step(block)) progress = true;
      if (!progress && !fault_) progress = passCompetedWaits();
    }
    if (!fault_) checkEnd();
    return fault_;
  }

  /// After run(): for each operation of the plan the position of its data; -1: no data transfer.
  constexpr const std::vector<std::int32_t>& positions() const { return positions_; }

 private:
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
  };
  /// The proxy's work for a port channel.
  struct Port {
    std::int32_t actor = -1;
    std::int32_t interval = 0;
    Clock clock;  ///< what is before its next action
  };

  static constexpr std::int32_t leastCommonShares(const Plan& plan) {
    std::int32_t shares = 1;
    for (const Operation& operation : plan.operations)
      if (operation.kind == OperationKind::Transfer) shares = std::lcm(shares, std::int32_t{operation.shares});
    return shares;
  }

  // ---- actors: blocks, then port channels, then callers

  constexpr std::int32_t callerActor(std::int32_t rank) const { return countOf(plan_.blocks) + portChannels_ + rank; }

  constexpr void makeActors() {
    ports_.resize(plan_.channels.size());
    for (std::int32_t i = 0; i < countOf(plan_.channels); ++i)
      if (plan_.channels[i].access == Access::Port) ports_[i].actor = countOf(plan_.blocks) + portChannels_++;
    const std::int32_t actors = callerActor(plan_.ranks);
    for (Port& port : ports_)
      if (port.actor >= 0) port.clock = Clock(actors);
    blocks_.resize(plan_.blocks.size());
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank)
      for (std::int32_t i = 0; i < plan_.rankPlans[rank].blocks.count; ++i) {
        BlockState& block = blocks_[plan_.rankPlans[rank].blocks.first + i];
        block.rank = rank;
        block.clock = block.pending = Clock(actors);
      }
    callers_.resize(plan_.ranks, Clock(actors));
    callerCalls_.resize(plan_.ranks, 0);
    running_.resize(plan_.ranks, 0);
  }

  constexpr void makeCounters() {
    ends_ = otherEnds(plan_);
    counters_.resize(plan_.channels.size() + plan_.references.size());
    for (const RankPlan& rank : plan_.rankPlans)
      for (std::int32_t i = 0; i < rank.semaphores.count; ++i)
        counters_[semaphoreCounter(rank, i)].initial = plan_.references[rank.semaphores.first + i];
    for (std::int32_t block = 0; block < countOf(plan_.blocks); ++block) {
      const Range operations = plan_.blocks[block].operations;
      for (std::int32_t i = 0; i < operations.count; ++i) {
        const Operation& operation = plan_.operations[operations.first + i];
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
  static constexpr bool waits(OperationKind kind) {
    return kind == OperationKind::Wait || kind == OperationKind::Acquire;
  }
  static constexpr bool usesCounters(OperationKind kind) { return raises(kind) || waits(kind); }
  constexpr std::int32_t semaphoreCounter(const RankPlan& rank, std::int32_t semaphore) const {
    return countOf(plan_.channels) + rank.semaphores.first + semaphore;
  }
  /// The counter that reference `k` of an operation of a block concerns. Those of channels have the number of the
  /// receiving end.
  constexpr std::int32_t counterOf(std::int32_t block, const Operation& operation, std::int32_t k) const {
    const RankPlan& rank = plan_.rankPlans[rankOf(block)];
    const std::int32_t reference = plan_.references[operation.references.first + k];
    if (operation.kind == OperationKind::Acquire || operation.kind == OperationKind::Release)
      return semaphoreCounter(rank, reference);
    const std::int32_t channel = rank.channels.first + reference;
    return operation.kind == OperationKind::Signal ? ends_[channel] : channel;
  }
  constexpr std::int32_t rankOf(std::int32_t block) const { return blocks_[block].rank; }

  // ---- calls

  /// The caller writes the inputs of its next call and launches it.
  constexpr void startCall(std::int32_t rank) {
    const RankPlan& of = plan_.rankPlans[rank];
    const std::int32_t call = callerCalls_[rank];
    Clock& caller = callers_[rank];
    const DataAccess access{callerActor(rank), 2 * call + 1, ++instances_, -1, -1};
    for (std::int32_t chunk = 0; chunk < of.inputChunks; ++chunk) {
      const std::int32_t value = values_.addInput(call, rank, chunk);
      Cell* cells = contents_.chunk(BufferKind::Input, rank, chunk, call);
      for (std::int32_t i = 0; i < cellsPerChunk(); ++i) {
        locate({BufferKind::Input, rank, chunk, call});
        write(cells[i], access, caller, caller, value);
      }
    }
    caller.enter(callerActor(rank), 2 * call + 1);
    running_[rank] = of.blocks.count;
    for (std::int32_t i = 0; i < of.blocks.count; ++i) {
      BlockState& block = blocks_[of.blocks.first + i];
      block.call = call;
      block.next = 0;
      block.finished = false;
      block.clock.merge(caller);
      block.snapshot = -1;
    }
    if (of.blocks.count == 0) endCall(rank);
  }

  /// All blocks have finished: the caller reads the outputs.
  constexpr void endCall(std::int32_t rank) {
    const RankPlan& of = plan_.rankPlans[rank];
    const std::int32_t call = callerCalls_[rank];
    Clock& caller = callers_[rank];
    for (std::int32_t i = 0; i < of.blocks.count; ++i) caller.merge(blocks_[of.blocks.first + i].clock);
    const DataAccess access{callerActor(rank), 2 * call + 2, ++instances_, -1, -1};
    for (std::int32_t chunk = 0; chunk < of.outputChunks && !fault_; ++chunk) {
      std::vector<std::int32_t> expected = values_.expected(call, rank, chunk);
      if (expected.empty()) continue;
      Cell* cells = contents_.chunk(BufferKind::Output, rank, chunk, call);
      for (std::int32_t i = 0; i < cellsPerChunk() && !fault_; ++i) {
        locate({BufferKind::Output, rank, chunk, call});
        if (cells[i].value < 0) return reportAt(FaultKind::Uninitialised, -1, rank);
        read(cells[i], access, caller);
        if (values_[cells[i].value].contributions != expected) reportAt(FaultKind::WrongResult, -1, rank);
      }
    }
    caller.enter(callerActor(rank), 2 * call + 2);
    if (++callerCalls_[rank] < calls_ && !fault_) startCall(rank);
  }

  // ---- operations

  /// Runs the next operation of a block; false: it waits, or the block has finished.
  constexpr bool step(std::int32_t index) {
    BlockState& block = blocks_[index];
    if (block.finished || callerCalls_[block.rank] >= calls_) return false;
    const Range operations = plan_.blocks[index].operations;
    if (block.next == operations.count) {
      synchronise(index);
      block.finished = true;
      if (--running_[block.rank] == 0) endCall(block.rank);
      return true;
    }
    const Operation& operation = plan_.operations[operations.first + block.next];
    switch (operation.kind) {
      case OperationKind::Transfer:
        if (!transfer(index, operation)) return false;
        break;
      case OperationKind::Signal:
      case OperationKind::Release:
        for (std::int32_t k = 0; k < operation.references.count; ++k) raise(index, operation, k);
        break;
      case OperationKind::Wait:
      case OperationKind::Acquire:
        for (; block.reference < operation.references.count; ++block.reference)
          if (!take(index, operation, block.reference)) return false;
        block.reference = 0;
        break;
      case OperationKind::Flush:
        for (std::int32_t k = 0; k < operation.references.count; ++k)
          block.pending.merge(ports_[channelOf(index, operation, k)].clock);
        break;
      case OperationKind::Sync:
        synchronise(index);
        break;
      case OperationKind::Barrier:
        if (!barrier(index, operation)) return false;
        break;
      case OperationKind::LoopBegin:
        block.iteration = 0;
        block.loopStart = block.next;
        break;
      case OperationKind::LoopEnd:
        if (++block.iteration < iterations_)
          block.next = block.loopStart;
        else
          block.iteration = -1;
        break;
    }
    ++block.next;
    return true;
  }

  constexpr std::int32_t channelOf(std::int32_t block, const Operation& operation, std::int32_t k) const {
    return plan_.rankPlans[rankOf(block)].channels.first + plan_.references[operation.references.first + k];
  }

  constexpr void synchronise(std::int32_t index) {
    BlockState& block = blocks_[index];
    block.clock.merge(block.pending);
    block.clock.enter(index, block.interval++);
    block.snapshot = -1;
  }

  constexpr bool barrier(std::int32_t index, const Operation& operation) {
    blocks_[index].arrived = true;
    const Range blocks = plan_.rankPlans[rankOf(index)].blocks;
    std::vector<std::int32_t> arrived;
    for (std::int32_t i = blocks.first; i < blocks.first + blocks.count; ++i) {
      const BlockState& block = blocks_[i];
      const Range operations = plan_.blocks[i].operations;
      if (!block.arrived || block.next >= operations.count) continue;
      const Operation& at = plan_.operations[operations.first + block.next];
      if (at.kind == OperationKind::Barrier && at.index == operation.index) arrived.push_back(i);
    }
    if (countOf(arrived) < operation.blocks) return false;
    Clock all = blocks_[index].clock;
    for (const std::int32_t i : arrived) {
      synchronise(i);
      all.merge(blocks_[i].clock);
    }
    for (const std::int32_t i : arrived) {
      blocks_[i].clock = all;
      blocks_[i].snapshot = -1;
      blocks_[i].arrived = false;
      if (i != index) ++blocks_[i].next;
    }
    return true;
  }

  constexpr void raise(std::int32_t index, const Operation& operation, std::int32_t k) {
    BlockState& block = blocks_[index];
    std::int32_t clock = -1;
    if (operation.kind == OperationKind::Signal) {
      Port& port = ports_[channelOf(index, operation, k)];
      if (port.actor >= 0) {  // the proxy signals after what it has written
        port.clock.merge(block.clock);
        clock = snapshots_.add(port.clock);
      }
    }
    if (clock < 0) clock = snapshotOf(block);
    counters_[counterOf(index, operation, k)].raises.push_back({clock, operation.relaxed, index, block.next});
  }

  constexpr void acquire(BlockState& block, const Operation& operation, const Counter::Raise& raise) {
    if (operation.relaxed || raise.relaxed)
      block.pending.mergeWeak(snapshots_[raise.clock]);
    else
      block.pending.merge(snapshots_[raise.clock]);
  }

  constexpr std::int32_t snapshotOf(BlockState& block) {
    if (block.snapshot < 0) block.snapshot = snapshots_.add(block.clock);
    return block.snapshot;
  }

  /// One wait on a counter with at most one producer and one consumer.
  constexpr bool take(std::int32_t index, const Operation& operation, std::int32_t k) {
    Counter& counter = counters_[counterOf(index, operation, k)];
    if (!counter.isSimple() || counter.value() <= 0) return false;
    const std::int32_t number = counter.taken++ - counter.initial;
    if (number >= 0) acquire(blocks_[index], operation, counter.raises[number]);
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
        BlockState& block = blocks_[index];
        const Operation& operation = plan_.operations[plan_.blocks[index].operations.first + block.next];
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

  constexpr bool waitsFor(std::int32_t index, std::int32_t counter) const {
    const BlockState& block = blocks_[index];
    const Range operations = plan_.blocks[index].operations;
    if (block.finished || block.next >= operations.count || callerCalls_[block.rank] >= calls_) return false;
    const Operation& operation = plan_.operations[operations.first + block.next];
    return waits(operation.kind) && block.reference < operation.references.count &&
           counterOf(index, operation, block.reference) == counter;
  }

  constexpr void reportCounter(const Counter& counter, std::int32_t index, std::int32_t operation,
                               std::int32_t number) {
    if (fault_) return;
    report(FaultKind::AmbiguousCounter, index, operation);
    fault_.index = number < countOf(plan_.channels)
                       ? number - plan_.rankPlans[rankOf(index)].channels.first
                       : number - countOf(plan_.channels) - plan_.rankPlans[rankOf(index)].semaphores.first;
    for (const auto& blocks : {counter.producers, counter.consumers})
      for (const std::int32_t other : blocks)
        if (other != index && fault_.otherBlock < 0) {
          fault_.otherRank = rankOf(other);
          fault_.otherBlock = other - plan_.rankPlans[rankOf(other)].blocks.first;
        }
  }

  // ---- data

  struct Location {
    BufferKind buffer = BufferKind::Input;
    std::int32_t rank = 0;
    std::int32_t chunk = 0;
    std::int32_t call = 0;
  };
  constexpr void locate(const Location& location) { location_ = location; }

  constexpr std::int32_t cellsPerChunk() const { return iterations_ * sharesPerIteration_; }

  /// Calls f(cells) for each chunk `i` of an operand: the chunk at its rank, or at each member of its switch channel.
  template <class F>
  constexpr void forEachPlace(const BlockState& block, const Operand& operand, std::int32_t i, F&& f) {
    const std::int32_t chunk = operand.first + i;
    if (operand.access != Access::Switch) {
      locate({operand.buffer, operand.rank, chunk, block.call});
      return f(contents_.chunk(operand.buffer, operand.rank, chunk, block.call));
    }
    const Channel& channel = plan_.channels[plan_.rankPlans[block.rank].channels.first + operand.channel];
    for (std::int32_t k = 0; k < channel.members.count; ++k) {
      const std::int32_t member = plan_.references[channel.members.first + k];
      locate({operand.buffer, member, chunk, block.call});
      f(contents_.chunk(operand.buffer, member, chunk, block.call));
    }
  }

  constexpr bool transfer(std::int32_t index, const Operation& operation) {
    BlockState& block = blocks_[index];
    // Its cells of each chunk: its share, in a loop of this iteration's part.
    const bool inLoop = block.iteration >= 0;
    const std::int32_t span = inLoop ? sharesPerIteration_ : cellsPerChunk();
    const std::int32_t start = inLoop ? block.iteration * sharesPerIteration_ : 0;
    const std::int32_t firstCell = start + span * operation.share / operation.shares;
    const std::int32_t lastCell = start + span * (operation.share + 1) / operation.shares;
    const auto forEachSource = [&](std::int32_t i, auto&& f) {
      for (std::int32_t s = 0; s < operation.sources.count; ++s) {
        const Operand& operand = plan_.operands[operation.sources.first + s];
        forEachPlace(block, operand, i, [&](Cell* cells) { f(operand, cells); });
      }
    };

    bool arrived = true;
    for (std::int32_t i = 0; i < operation.chunks && arrived; ++i)
      forEachSource(i, [&](const Operand& operand, const Cell* cells) {
        if (operand.form == Form::Packet)
          for (std::int32_t c = firstCell; c < lastCell; ++c) arrived &= cells[c].packetCall >= block.call;
      });
    if (!arrived) return false;

    const Operand& destination = plan_.operands[operation.destinations.first];
    const bool throughPort = destination.access == Access::Port;
    Port* const port =
        throughPort ? &ports_[plan_.rankPlans[block.rank].channels.first + destination.channel] : nullptr;
    if (throughPort) port->clock.merge(block.clock);
    DataAccess access{index, block.interval, ++instances_, index, block.next};
    if (throughPort) {
      access.actor = port->actor;
      access.interval = ++port->interval;
    }
    const Clock& clock = throughPort ? port->clock : block.clock;
    std::int32_t& position = positions_[plan_.blocks[index].operations.first + block.next];

    for (std::int32_t i = 0; i < operation.chunks && !fault_; ++i) {
      bool readsPackets = false;
      Clock order;  // `clock` with what the packets tell, if it reads packets
      std::vector<std::int32_t> results;
      for (std::int32_t c = firstCell; c < lastCell && !fault_; ++c) {
        std::vector<std::int32_t> terms;
        forEachSource(i, [&](const Operand& operand, Cell* cells) {
          if (fault_) return;
          Cell& cell = cells[c];
          if (cell.value < 0) return report(FaultKind::Uninitialised, index, block.next);
          if (operand.form == Form::Packet && !throughPort) {
            if (cell.packetCall > block.call)  // a later call has overwritten them
              return reportConflict(FaultKind::WriteBeforeRead, access, cell.write);
            if (!readsPackets) order = clock;
            readsPackets = true;
            order.mergeWeak(snapshots_[cell.packetClock]);
            cell.reads.push_back(access);
          } else {
            read(cell, access, clock);
          }
          terms.push_back(cell.value);
        });
        if (fault_) break;
        for (const std::int32_t term : terms) {
          const std::int32_t expected = (values_[terms[0]].position) % plan_.chunksPerPart;
          if (values_[term].position != expected) return report(FaultKind::MixedPositions, index, block.next), false;
        }
        results.push_back(values_.sum(terms));
      }
      if (fault_) return false;
      const std::int32_t first = plan_.chunksPerPart + values_[results[0]].position - i % plan_.chunksPerPart;
      const std::int32_t found = first % plan_.chunksPerPart;
      if (position < 0) position = found;
      if (position != found) return report(FaultKind::MixedPositions, index, block.next), false;
      if (checkPositions_ && operation.position != found)
        return report(FaultKind::WrongPosition, index, block.next), false;
      if (readsPackets) block.pending.mergeWeak(order);
      const Clock& before = readsPackets ? order : clock;
      std::int32_t packetClock = -1;
      for (std::int32_t d = 0; d < operation.destinations.count && !fault_; ++d) {
        const Operand& operand = plan_.operands[operation.destinations.first + d];
        const std::int32_t target = (position + i) % plan_.chunksPerPart;
        if (operand.buffer != BufferKind::Scratch && chunkPosition(plan_, operand.first + i) != target)
          return locate({operand.buffer, operand.rank, operand.first + i, block.call}),
                 reportAt(FaultKind::MixedPositions, index, block.rank), false;
        forEachPlace(block, operand, i, [&](Cell* cells) {
          for (std::int32_t c = firstCell; c < lastCell && !fault_; ++c) {
            const std::int32_t value = results[c - firstCell];
            if (operand.buffer == BufferKind::Input && !plan_.inPlace)
              return reportAt(FaultKind::InputOverwritten, index, block.rank);
            if (operand.form == Form::Packet && cells[c].packetCall >= block.call)
              return reportConflict(FaultKind::PacketWrittenTwice, access, cells[c].write);
            write(cells[c], access, clock, before, value);
            if (operand.form != Form::Packet) continue;
            if (packetClock < 0) packetClock = readsPackets || throughPort ? snapshots_.add(before) : snapshotOf(block);
            cells[c].packetCall = block.call;
            cells[c].packetClock = packetClock;
          }
        });
      }
    }
    if (throughPort) port->clock.enter(access.actor, access.interval);
    return !fault_;
  }

  constexpr void read(Cell& cell, const DataAccess& access, const Clock& clock) {
    if (!isOrdered(cell.write, access, clock.strong)) reportConflict(FaultKind::ReadBeforeWrite, access, cell.write);
    cell.reads.push_back(access);
  }

  /// `clock`: what is ordered before the operation; `order`: with the packets that it has read.
  constexpr void write(Cell& cell, const DataAccess& access, const Clock& clock, const Clock& order,
                       std::int32_t value) {
    bool wasRead = false;  // a write after a read of the old write comes after that write
    for (const DataAccess& earlier : cell.reads) {
      if (earlier.instance == access.instance) continue;
      if (!isOrdered(earlier, access, order.weak)) return reportConflict(FaultKind::WriteBeforeRead, access, earlier);
      wasRead = true;
    }
    if (cell.value >= 0 && !wasRead &&
        (cell.write.instance == access.instance || !isOrdered(cell.write, access, clock.strong)))
      return reportConflict(FaultKind::WriteBeforeWrite, access, cell.write);
    cell.reads.clear();
    cell.write = access;
    cell.value = value;
    cell.packetCall = -1;
  }

  static constexpr bool isOrdered(const DataAccess& earlier, const DataAccess& later,
                                  const std::vector<std::int32_t>& clock) {
    return earlier.instance == later.instance || clock[earlier.actor] >= earlier.interval;
  }

  // ---- the end

  constexpr void checkEnd() {
    for (std::int32_t index = 0; index < countOf(blocks_); ++index) {
      const BlockState& block = blocks_[index];
      if (callerCalls_[block.rank] >= calls_ || block.finished) continue;
      report(FaultKind::Deadlock, index, block.next);
      const Operation& operation = plan_.operations[plan_.blocks[index].operations.first + block.next];
      if (waits(operation.kind)) {
        fault_.index = plan_.references[operation.references.first + block.reference];
        if (operation.kind == OperationKind::Wait)
          fault_.otherRank = plan_.channels[channelOf(index, operation, block.reference)].peer;
      } else if (operation.kind == OperationKind::Barrier) {
        fault_.index = operation.index;
      }
      return;
    }
    for (std::int32_t number = 0; number < countOf(counters_); ++number) {
      const Counter& counter = counters_[number];
      for (const Counter::FullWait& wait : counter.fullWaits)
        for (std::int32_t i = wait.raises; i < countOf(counter.raises); ++i)
          if (snapshots_[counter.raises[i].clock].weak[wait.block] < wait.interval)
            return reportCounter(counter, wait.block, wait.operation, number);
      if (counter.value() == counter.initial) continue;
      if (number >= countOf(plan_.channels)) {
        const std::int32_t block = counter.raises.empty() ? counter.consumers[0] : counter.raises.back().block;
        report(FaultKind::UnbalancedSemaphore, block, -1);
        fault_.index = number - countOf(plan_.channels) - plan_.rankPlans[rankOf(block)].semaphores.first;
      } else {
        report(FaultKind::UnmatchedSignal, counter.raises.back().block, counter.raises.back().operation);
        fault_.otherRank = plan_.channels[ends_[number]].peer;
      }
      return;
    }
  }

  // ---- reports

  constexpr void report(FaultKind kind, std::int32_t block, std::int32_t operation) {
    if (fault_) return;
    fault_.kind = kind;
    setBlock(block, operation);
    fault_.buffer = location_.buffer;
    fault_.bufferRank = location_.rank;
    fault_.chunk = location_.chunk;
  }
  constexpr void setBlock(std::int32_t block, std::int32_t operation) {
    fault_.rank = rankOf(block);
    fault_.block = block - plan_.rankPlans[fault_.rank].blocks.first;
    fault_.operation = operation;
    fault_.call = blocks_[block].call;
  }
  /// A fault at the location; `block` -1: found by the caller.
  constexpr void reportAt(FaultKind kind, std::int32_t block, std::int32_t rank) {
    if (fault_) return;
    fault_.kind = kind;
    if (block >= 0) setBlock(block, blocks_[block].next);
    fault_.rank = rank;
    fault_.buffer = location_.buffer;
    fault_.bufferRank = location_.rank;
    fault_.chunk = location_.chunk;
    fault_.call = location_.call;
  }
  constexpr void reportConflict(FaultKind kind, const DataAccess& access, const DataAccess& other) {
    if (fault_) return;
    reportAt(kind, -1, access.block >= 0 ? rankOf(access.block) : access.actor - callerActor(0));
    if (access.block >= 0) {
      setBlock(access.block, access.operation);
    }
    fault_.otherRank = other.block >= 0 ? rankOf(other.block) : other.actor - callerActor(0);
    if (other.block >= 0) {
      fault_.otherBlock = other.block - plan_.rankPlans[fault_.otherRank].blocks.first;
      fault_.otherOperation = other.operation;
    }
  }

  const Plan& plan_;
  std::int32_t calls_;
  std::int32_t iterations_;
  std::int32_t sharesPerIteration_;
  Values values_;
  Contents contents_;
  std::vector<std::int32_t> positions_;
  bool checkPositions_ = true;

  std::vector<BlockState> blocks_;
  std::vector<Port> ports_;  // of each channel; unused for those of other kinds
  std::int32_t portChannels_ = 0;
  std::vector<Clock> callers_;
  std::vector<std::int32_t> callerCalls_;  // which call each rank is in
  std::vector<std::int32_t> running_;      // blocks of each rank that have not finished their call
  std::vector<std::int32_t> ends_;
  std::vector<Counter> counters_;
  Snapshots snapshots_;
  std::int32_t instances_ = 0;

  Location location_;  // of the cells that are looked at
  Fault fault_;
};

}  // namespace mscclpp::plan
