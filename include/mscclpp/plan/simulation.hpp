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

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "mscclpp/plan/cells.hpp"
#include "mscclpp/plan/clock.hpp"
#include "mscclpp/plan/contents.hpp"
#include "mscclpp/plan/counter.hpp"
#include "mscclpp/plan/fault.hpp"
#include "mscclpp/plan/piece.hpp"
#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/ports.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

/// What a check may cost: a plan that needs more is not checked (FaultKind::TooLarge).
struct CheckLimits {
  std::uint64_t steps = std::uint64_t{1} << 36;    ///< about as many comparisons of numbers: a minute
  std::uint64_t numbers = std::uint64_t{1} << 28;  ///< to be kept at a time: 1 GiB
};

/// One simulation of a plan that has no fault of structure.
class Simulation {
 public:
  /// Loops are run `iterations` times, each iteration on a part of its own of each chunk. pair: only the order of these
  /// accesses is checked; null: everything.
  constexpr Simulation(const Plan& plan, std::int32_t calls, std::int32_t iterations, const CheckLimits& limits,
                       const PiecePair* pair = nullptr)
      : plan_(plan),
        calls_(calls),
        limits_(limits),
        pair_(pair),
        layout_(cellLayoutOf(plan, iterations)),
        values_(plan),
        contents_(plan, layout_),
        positions_(plan.operations.size(), -1) {
    for (const Operand& operand : plan.operands) hasPackets_ |= operand.form == Form::Packet;
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
      steps_ += blocks_.size();
    }
    if (!fault_) checkEffort();
    if (!fault_) checkEnd();
    return fault_;
  }

  /// After run(): for each operation of the plan the position of its data; -1: no data transfer.
  constexpr const std::vector<std::int32_t>& positions() const { return positions_; }
  /// After run(): the accesses of the last call whose order may depend on packets that not all messages have.
  constexpr const std::vector<PiecePair>& openPairs() const { return openPairs_; }
  /// After run(): how much was done, see CheckLimits.
  constexpr std::uint64_t steps() const { return steps_; }

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
    std::int32_t certificates = 0;
    /// The weak order of its next accesses to a piece, where packets of the piece have told more than `clock` has since
    /// the last Sync: the thread that reads a packet transfers the same bytes of the piece in all operations.
    struct Known {
      Piece piece;
      std::vector<std::int32_t> weak;
    };
    std::vector<Known> known;
  };
  /// What is ordered before an access: see Clock.
  struct Order {
    const std::vector<std::int32_t>& strong;
    const std::vector<std::int32_t>& weak;
  };

  // ---- actors: blocks, ports, callers; and, when a pair is checked, certificates of blocks: that the reads of the
  // earlier piece are complete, up to one. Packets made of what was read have them already before the next Sync.

  constexpr std::int32_t callerActor(std::int32_t rank) const { return countOf(plan_.blocks) + ports_.count() + rank; }
  constexpr std::int32_t certificateActor(std::int32_t block) const { return callerActor(plan_.ranks) + block; }

  constexpr void makeActors() {
    blocks_.resize(plan_.blocks.size());
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank)
      for (std::int32_t i = 0; i < plan_.rankPlans[rank].blocks.count; ++i)
        blocks_[plan_.rankPlans[rank].blocks.first + i].rank = rank;
    for (std::int32_t block = 0; block < countOf(blocks_); ++block) {
      const Range operations = plan_.blocks[block].operations;
      for (std::int32_t i = operations.first; i < operations.first + operations.count; ++i) notePorts(block, i);
    }
    const std::int32_t actors = pair_ == nullptr ? callerActor(plan_.ranks) : certificateActor(countOf(blocks_));
    ports_.start(countOf(blocks_), actors);
    for (BlockState& block : blocks_) block.clock = block.pending = Clock(actors);
    callers_.resize(plan_.ranks, Clock(actors));
    callerCalls_.resize(plan_.ranks, 0);
    running_.resize(plan_.ranks, 0);
  }

  constexpr void notePorts(std::int32_t block, std::int32_t number) {
    const Operation& operation = plan_.operations[number];
    const std::int32_t first = plan_.rankPlans[rankOf(block)].channels.first;
    if (operation.kind == OperationKind::Transfer) {
      const Operand& destination = plan_.operands[operation.destinations.first];
      if (destination.access == Access::Port) ports_.note(first + destination.channel, block);
    } else if (operation.kind == OperationKind::Signal || operation.kind == OperationKind::Flush) {
      for (std::int32_t k = 0; k < operation.references.count; ++k)
        if (isPort(channelOf(block, operation, k))) ports_.note(channelOf(block, operation, k), block);
    }
  }
  constexpr bool isPort(std::int32_t channel) const { return plan_.channels[channel].access == Access::Port; }

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

  /// The caller writes the inputs of its next call and launches it. Its buffers may be others than before.
  constexpr void startCall(std::int32_t rank) {
    const RankPlan& of = plan_.rankPlans[rank];
    const std::int32_t call = callerCalls_[rank];
    Clock& caller = callers_[rank];
    const auto fill = [&](BufferKind buffer, std::int32_t chunk, std::int32_t value) {
      const std::int32_t index = contents_.chunk(buffer, rank, chunk, call);
      for (std::int32_t c = 0; c < layout_.cells(); ++c) {
        const Contents::Place place = contents_.at(index, c);
        const Piece piece{call, chunkPosition(plan_, chunk), c};
        place.cell = Cell();
        place.cell.value = value;
        place.cell.write = {callerActor(rank), 2 * call + 1, 0, -1, -1, true, piece};
        place.strip = Strip();
        place.strip.holds = piece;
        place.strip.write = place.cell.write;
      }
      steps_ += layout_.cells();
    };
    for (std::int32_t chunk = 0; chunk < of.outputChunks; ++chunk) fill(BufferKind::Output, chunk, -1);
    for (std::int32_t chunk = 0; chunk < of.inputChunks; ++chunk)
      fill(BufferKind::Input, chunk, values_.addInput(call, rank, chunk));
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

  /// All blocks have finished: the caller reads the outputs, and may do what it likes with its buffers.
  constexpr void endCall(std::int32_t rank) {
    const RankPlan& of = plan_.rankPlans[rank];
    Clock& caller = callers_[rank];
    for (std::int32_t i = 0; i < of.blocks.count; ++i) caller.merge(blocks_[of.blocks.first + i].clock);
    for (std::int32_t chunk = 0; chunk < of.outputChunks && !fault_; ++chunk) endUse(BufferKind::Output, rank, chunk);
    for (std::int32_t chunk = 0; chunk < of.inputChunks && !fault_; ++chunk) endUse(BufferKind::Input, rank, chunk);
    caller.enter(callerActor(rank), 2 * callerCalls_[rank] + 2);
    if (++callerCalls_[rank] < calls_ && !fault_) startCall(rank);
  }

  constexpr void endUse(BufferKind buffer, std::int32_t rank, std::int32_t chunk) {
    const std::int32_t call = callerCalls_[rank], position = chunkPosition(plan_, chunk);
    if (pair_ != nullptr && !pair_->later.isSameData({call, position, 0})) return;
    const Order order{callers_[rank].strong, callers_[rank].weak};
    std::vector<std::int32_t> expected;
    if (buffer == BufferKind::Output) expected = values_.expected(call, rank, chunk);
    const std::int32_t index = contents_.chunk(buffer, rank, chunk, call);
    locate({buffer, rank, chunk, call});
    for (std::int32_t c = 0; c < layout_.cells() && !fault_; ++c) {
      const Piece piece{call, position, c};
      if (!isChecked(piece)) continue;
      const DataAccess access{callerActor(rank), 2 * call + 2, ++instances_, -1, -1, false, piece};
      const Cell& cell = contents_.at(index, c).cell;
      if (!expected.empty() && cell.value < 0) return reportAt(FaultKind::Uninitialised, -1, rank);
      if (!isOrdered(cell.write, access, order))
        reportOrder(expected.empty() ? FaultKind::AccessAfterCall : FaultKind::ReadBeforeWrite, access, cell.write);
      for (const DataAccess& earlier : cell.reads)
        if (!isOrdered(earlier, access, order)) reportOrder(FaultKind::AccessAfterCall, access, earlier);
      if (pair_ == nullptr && !expected.empty() && values_[cell.value].contributions != expected)
        reportAt(FaultKind::WrongResult, -1, rank);
    }
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
    checkEffort();
    if (fault_) return false;
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
          block.pending.merge(push(index, channelOf(index, operation, k)).clock);
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
        if (++block.iteration < layout_.iterations())
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
    block.known.clear();
  }

  constexpr Port& push(std::int32_t index, std::int32_t channel) {
    steps_ += blocks_[index].clock.size();
    return ports_.push(channel, index, blocks_[index].clock, snapshots_);
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
      steps_ += all.size();
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
    if (operation.kind == OperationKind::Signal && isPort(channelOf(index, operation, k))) {
      Port& port = push(index, channelOf(index, operation, k));  // the proxy signals after what it has written
      clock = snapshots_.add(port.clock);
      ports_.finish(port, block.interval, snapshots_);
    }
    if (clock < 0) clock = snapshotOf(block);
    counters_[counterOf(index, operation, k)].raises.push_back({clock, operation.relaxed, index, block.next});
  }

  constexpr void acquire(BlockState& block, const Operation& operation, const Counter::Raise& raise) {
    steps_ += block.clock.size();
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

  /// Whether accesses to the piece are checked.
  constexpr bool isChecked(const Piece& piece) const {
    return pair_ == nullptr || piece == pair_->earlier || piece == pair_->later;
  }
  /// Whether all messages that are considered have bytes there.
  constexpr bool isPresent(const Piece& piece) const {
    return piece.isAlwaysPresent() || (pair_ != nullptr && pair_->implies(piece));
  }
  /// What a transfer moves as cell `cell` of its i-th chunks.
  constexpr Piece pieceOf(const BlockState& block, const Operation& operation, std::int32_t i,
                          std::int32_t cell) const {
    return {block.call, (operation.position + i) % plan_.chunksPerPart, cell};
  }

  /// Calls f(index of the chunk, rank) for chunk i of an operand: at its rank, or at each member of its switch channel.
  template <class F>
  constexpr void forEachPlace(const BlockState& block, const Operand& operand, std::int32_t i, F&& f) {
    const std::int32_t chunk = operand.first + i;
    const auto visit = [&](std::int32_t rank) {
      locate({operand.buffer, rank, chunk, block.call});
      f(contents_.chunk(operand.buffer, rank, chunk, block.call), rank);
    };
    if (operand.access != Access::Switch) return visit(operand.rank);
    const Channel& channel = plan_.channels[plan_.rankPlans[block.rank].channels.first + operand.channel];
    for (std::int32_t k = 0; k < channel.members.count; ++k) visit(plan_.references[channel.members.first + k]);
  }
  template <class F>
  constexpr void forEachOperand(Range range, F&& f) {
    for (std::int32_t i = range.first; i < range.first + range.count && !fault_; ++i) f(plan_.operands[i]);
  }

  constexpr bool transfer(std::int32_t index, const Operation& operation) {
    BlockState& block = blocks_[index];
    const std::vector<std::int32_t> cells = layout_.select(block.iteration, operation.share, operation.shares);
    if (!havePacketsArrived(block, operation, cells)) return false;
    const Operand& destination = plan_.operands[operation.destinations.first];
    Port* port = nullptr;
    if (destination.access == Access::Port) {
      if (plan_.operands[operation.sources.first].form == Form::Packet) {
        // The threads wait for the packets, then for each other.
        for (std::int32_t i = 0; i < operation.chunks; ++i)
          for (const std::int32_t c : cells) readPackets(block, operation, i, pieceOf(block, operation, i, c));
        synchronise(index);
      }
      port = &push(index, plan_.rankPlans[block.rank].channels.first + destination.channel);
      ++port->interval;
    }
    const std::int32_t instance = ++instances_;
    for (std::int32_t i = 0; i < operation.chunks; ++i)
      for (const std::int32_t c : cells)
        if (!fault_) transferCell(index, operation, i, c, instance, port);
    if (port != nullptr) {
      port->clock.enter(port->actor, port->interval);
      ports_.finish(*port, block.interval, snapshots_);
    }
    return !fault_;
  }

  constexpr bool havePacketsArrived(const BlockState& block, const Operation& operation,
                                    const std::vector<std::int32_t>& cells) {
    bool arrived = true;
    forEachOperand(operation.sources, [&](const Operand& operand) {
      if (operand.form != Form::Packet) return;
      for (std::int32_t i = 0; i < operation.chunks && arrived; ++i)
        forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t) {
          for (const std::int32_t c : cells)
            if (pair_ == nullptr || isPresent(pieceOf(block, operation, i, c)))
              arrived &= contents_.at(chunk, c).cell.packetCall >= block.call;
        });
    });
    return arrived;
  }

  /// What the packets tell that the transfer reads.
  constexpr void readPackets(BlockState& block, const Operation& operation, std::int32_t i, const Piece& piece) {
    if (!isPresent(piece)) return;
    forEachOperand(operation.sources, [&](const Operand& operand) {
      if (operand.form != Form::Packet) return;
      forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t) {
        const std::int32_t clock = contents_.at(chunk, piece.cell).cell.packetClock;
        if (clock < 0) return;
        const auto isOfPiece = [&](const BlockState::Known& known) { return known.piece == piece; };
        auto known = std::find_if(block.known.begin(), block.known.end(), isOfPiece);
        if (known == block.known.end()) known = block.known.insert(known, {piece, block.clock.weak});
        Clock::raise(known->weak, snapshots_[clock].weak);
        block.pending.mergeWeak(snapshots_[clock]);
        steps_ += 2 * block.clock.size();
      });
    });
  }
  constexpr const std::vector<std::int32_t>& weakOf(const BlockState& block, const Piece& piece) const {
    for (const auto& known : block.known)
      if (known.piece == piece) return known.weak;
    return block.clock.weak;
  }

  constexpr void transferCell(std::int32_t index, const Operation& operation, std::int32_t i, std::int32_t c,
                              std::int32_t instance, Port* port) {
    BlockState& block = blocks_[index];
    Piece piece = pieceOf(block, operation, i, c);
    std::int32_t value = 0;
    if (pair_ == nullptr) {
      value = resultOf(index, operation, i, piece);
      if (fault_) return;
    } else if (!isPresent(piece)) {
      return;
    }
    DataAccess access{index, block.interval, instance, index, block.next, false, piece};
    if (port != nullptr) {
      access.actor = port->actor;
      access.interval = port->interval;
    } else {
      readPackets(block, operation, i, piece);
      if (pair_ != nullptr && piece == pair_->earlier) access.certificate = ++block.certificates;
    }
    const Order order{port != nullptr ? port->clock.strong : block.clock.strong,
                      port != nullptr ? port->clock.weak : weakOf(block, piece)};

    if (isChecked(piece))
      forEachOperand(operation.sources, [&](const Operand& operand) {
        forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t rank) {
          requireCall(operand, rank, access, order);
          read(contents_.at(chunk, c), operand.form == Form::Packet, access, order);
        });
      });
    access.isWrite = true;
    std::int32_t packetClock = -1;
    forEachOperand(operation.destinations, [&](const Operand& operand) {
      forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t rank) {
        Cell& cell = contents_.at(chunk, c).cell;
        const bool isPacket = operand.form == Form::Packet;
        if (operand.buffer == BufferKind::Input && !plan_.inPlace)
          return reportAt(FaultKind::InputOverwritten, index, block.rank);
        if (pair_ == nullptr && isPacket && cell.packetCall >= block.call)
          return reportConflict(FaultKind::PacketWrittenTwice, access, cell.write);
        if (isChecked(piece)) {
          requireCall(operand, rank, access, order);
          write(chunk, access, order, value);
        }
        if (!isPacket) return;
        if (packetClock < 0 && isPresent(piece)) packetClock = packetSnapshot(block, order, access);
        cell.packetCall = block.call;
        cell.packetClock = packetClock;
      });
    });
  }

  /// The value that a transfer stores in a cell of its i-th chunks. Sets the position of `piece` to that of the data.
  constexpr std::int32_t resultOf(std::int32_t index, const Operation& operation, std::int32_t i, Piece& piece) {
    const BlockState& block = blocks_[index];
    std::vector<std::int32_t> terms;
    forEachOperand(operation.sources, [&](const Operand& operand) {
      forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t rank) {
        const Contents::Place place = contents_.at(chunk, piece.cell);
        requireRunning(operand, rank, index);
        if (fault_) return;
        // What is wrong with data of a later call is told when it is read.
        if (place.cell.value < 0 || place.cell.write.piece.call < block.call)
          return report(FaultKind::Uninitialised, index, block.next);
        terms.push_back(place.cell.value);
      });
    });
    if (fault_) return -1;
    piece.position = values_[terms[0]].position;
    for (const std::int32_t term : terms)
      if (values_[term].position != piece.position) return report(FaultKind::MixedPositions, index, block.next), -1;
    const std::int32_t found = (plan_.chunksPerPart + piece.position - i % plan_.chunksPerPart) % plan_.chunksPerPart;
    std::int32_t& position = positions_[plan_.blocks[index].operations.first + block.next];
    if (position < 0) position = found;
    if (position != found) return report(FaultKind::MixedPositions, index, block.next), -1;
    if (checkPositions_ && operation.position != found) return report(FaultKind::WrongPosition, index, block.next), -1;
    forEachOperand(operation.destinations, [&](const Operand& operand) {
      if (operand.buffer == BufferKind::Scratch || chunkPosition(plan_, operand.first + i) == piece.position) return;
      locate({operand.buffer, operand.rank, operand.first + i, block.call});
      reportAt(FaultKind::MixedPositions, index, block.rank);
    });
    return values_.sum(terms);
  }

  /// What is told by packets that a transfer writes.
  constexpr std::int32_t packetSnapshot(BlockState& block, const Order& order, const DataAccess& access) {
    if (&order.weak == &block.clock.weak && access.certificate == 0) return snapshotOf(block);
    Clock clock;
    clock.weak = order.weak;
    if (access.certificate > 0) clock.weak[certificateActor(access.block)] = access.certificate;
    return snapshots_.add(clock);
  }

  /// Another rank's input and output may be accessed while its call runs.
  constexpr void requireRunning(const Operand& operand, std::int32_t rank, std::int32_t index) {
    const std::int32_t call = blocks_[index].call;
    if (operand.buffer == BufferKind::Scratch || callerCalls_[rank] == call) return;
    reportAt(callerCalls_[rank] < call ? FaultKind::AccessBeforeCall : FaultKind::AccessAfterCall, index,
             rankOf(index));
  }
  constexpr void requireCall(const Operand& operand, std::int32_t rank, const DataAccess& access, const Order& order) {
    const std::int32_t call = access.piece.call;
    if (operand.buffer == BufferKind::Scratch || rank == rankOf(access.block)) return;
    requireRunning(operand, rank, access.block);
    if (fault_) return;
    const DataAccess begin{callerActor(rank), 2 * call + 1, 0, -1, -1, false, access.piece};
    if (!isOrdered(begin, access, order)) reportOrder(FaultKind::AccessBeforeCall, access, begin);
  }

  constexpr void read(const Contents::Place& place, bool isPacket, const DataAccess& access, const Order& order) {
    if (fault_) return;
    if (!place.strip.holds.isSameData(access.piece)) {
      if (place.strip.holds.call < access.piece.call)
        return report(FaultKind::Uninitialised, access.block, access.operation);
      if (!isPacket && !isOrdered(place.strip.write, access, order))
        return reportConflict(FaultKind::ReadBeforeWrite, access, place.strip.write);
      return reportConflict(FaultKind::WriteBeforeRead, place.strip.write, access);
    }
    if (!isPacket && !isOrdered(place.cell.write, access, order))
      reportOrder(FaultKind::ReadBeforeWrite, access, place.cell.write);
    place.cell.reads.push_back(access);
    ++steps_;
  }

  constexpr void write(std::int32_t chunk, const DataAccess& access, const Order& order, std::int32_t value) {
    if (fault_) return;
    const Contents::Place place = contents_.at(chunk, access.piece.cell);
    Cell& cell = place.cell;
    Strip& strip = place.strip;
    if (!strip.holds.isSameData(access.piece)) {
      if (strip.holds.call > access.piece.call) return reportConflict(FaultKind::WriteBeforeWrite, access, strip.write);
      beginData(chunk, access, strip);
    }
    for (const DataAccess& earlier : strip.before)
      if (!isOrdered(earlier, access, order))
        reportOrder(earlier.isWrite ? FaultKind::WriteBeforeWrite : FaultKind::WriteBeforeRead, access, earlier);
    bool wasRead = false;  // a write after a read of the old write comes after that write
    for (const DataAccess& earlier : cell.reads) {
      if (earlier.instance == access.instance) continue;
      if (!isOrdered(earlier, access, order)) reportOrder(FaultKind::WriteBeforeRead, access, earlier);
      wasRead = true;
    }
    if (cell.value >= 0 && !wasRead && cell.write.piece.isSameData(access.piece)) {
      if (cell.write.instance == access.instance)
        return reportConflict(FaultKind::WriteBeforeWrite, access, cell.write);
      if (!isOrdered(cell.write, access, order)) reportOrder(FaultKind::WriteBeforeWrite, access, cell.write);
    }
    steps_ += 1 + strip.before.size() + cell.reads.size();
    cell.reads.clear();
    cell.write = access;
    cell.value = value;
    cell.packetCall = -1;
  }

  /// A strip gets data of another call or position than before, whose cells lie differently: what was accessed before,
  /// in all cells, comes before each write.
  constexpr void beginData(std::int32_t chunk, const DataAccess& access, Strip& strip) {
    Cell* const cells = contents_.stripOf(chunk, access.piece.cell);
    for (std::int32_t k = 0; k < layout_.cells() / layout_.iterations(); ++k) {
      if (cells[k].value < 0 || !cells[k].write.piece.isSameData(strip.holds)) continue;
      if (cells[k].reads.empty()) strip.before.push_back(cells[k].write);
      strip.before.insert(strip.before.end(), cells[k].reads.begin(), cells[k].reads.end());
      cells[k].reads.clear();
    }
    strip.holds = access.piece;
    strip.write = access;
  }

  /// Whether an access is ordered before another, about which `order` is known: a write is also visible.
  constexpr bool isOrdered(const DataAccess& earlier, const DataAccess& later, const Order& order) const {
    if (earlier.instance == later.instance) return true;
    if (earlier.isWrite) return order.strong[earlier.actor] >= earlier.interval;
    return order.weak[earlier.actor] >= earlier.interval ||
           (earlier.certificate > 0 && order.weak[certificateActor(earlier.block)] >= earlier.certificate);
  }

  constexpr void checkEffort() {
    if (steps_ > limits_.steps || snapshots_.numbers() + values_.terms() > limits_.numbers)
      fault_ = {.kind = FaultKind::TooLarge};
  }

  // ---- the end

  constexpr void checkEnd() {
    if (pair_ != nullptr) return;
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

  /// The order of a pair of accesses is missing. It is what packets may give that not all messages have: then the pair
  /// is noted, if it ends in the last call; those of the calls before are the same.
  constexpr void reportOrder(FaultKind kind, const DataAccess& access, const DataAccess& earlier) {
    const PiecePair pair{earlier.piece, access.piece};
    if (!hasPackets_ || (pair_ != nullptr && pair == *pair_)) return reportConflict(kind, access, earlier);
    if (pair_ != nullptr || pair.later.call != calls_ - 1) return;
    if (std::find(openPairs_.begin(), openPairs_.end(), pair) == openPairs_.end()) openPairs_.push_back(pair);
  }

  const Plan& plan_;
  std::int32_t calls_;
  CheckLimits limits_;
  const PiecePair* pair_;
  CellLayout layout_;
  bool hasPackets_ = false;
  Values values_;
  Contents contents_;
  std::vector<std::int32_t> positions_;
  bool checkPositions_ = true;

  std::vector<BlockState> blocks_;
  Ports ports_;
  std::vector<Clock> callers_;
  std::vector<std::int32_t> callerCalls_;  // which call each rank is in
  std::vector<std::int32_t> running_;      // blocks of each rank that have not finished their call
  std::vector<std::int32_t> ends_;
  std::vector<Counter> counters_;
  Snapshots snapshots_;
  std::int32_t instances_ = 0;
  std::vector<PiecePair> openPairs_;
  std::uint64_t steps_ = 0;

  Location location_;  // of the cells that are looked at
  Fault fault_;
};

}  // namespace mscclpp::plan
