// The data of a simulated plan: what transfers move, and whether their accesses are ordered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mscclpp/plan/cells.hpp"
#include "mscclpp/plan/contents.hpp"
#include "mscclpp/plan/simulation_state.hpp"

namespace mscclpp::plan {

/// The buffers of all ranks in a simulation.
class SimulatedData {
 public:
  /// iterations: of the loops, in each call.
  constexpr SimulatedData(SimulationState& state, const std::vector<std::int32_t>& iterations)
      : state_(state),
        iterations_(iterations),
        layout_(cellLayoutOf(state.plan, *std::max_element(iterations.begin(), iterations.end()))),
        values_(state.plan),
        contents_(state.plan, layout_),
        positions_(state.plan.operations.size(), -1) {}

  /// For each operation of the plan the position of its data; -1: no data transfer.
  constexpr const std::vector<std::int32_t>& positions() const { return positions_; }

  /// The caller of a rank writes the inputs of its next call. Its buffers may be others than before.
  constexpr void beginCall(std::int32_t rank) {
    const RankPlan& of = state_.plan.rankPlans[rank];
    const std::int32_t call = state_.callerCalls[rank];
    const auto fill = [&](BufferKind buffer, std::int32_t chunk, std::int32_t value) {
      const std::int32_t index = contents_.chunk(buffer, rank, chunk, call);
      for (std::int32_t c = 0; c < cellsOf(call); ++c) {
        const Contents::Place place = contents_.at(index, c);
        const Piece piece{call, chunkPosition(state_.plan, chunk), c};
        place.cell = Cell();
        place.cell.value = value;
        place.cell.write = {state_.callerActor(rank), 2 * call + 1, 0, -1, -1, true, piece};
        place.strip = Strip();
        place.strip.holds = piece;
        place.strip.write = place.cell.write;
      }
      state_.steps += cellsOf(call);
    };
    for (std::int32_t chunk = 0; chunk < of.outputChunks; ++chunk) fill(BufferKind::Output, chunk, -1);
    for (std::int32_t chunk = 0; chunk < of.inputChunks; ++chunk)
      fill(BufferKind::Input, chunk, values_.addInput(call, rank, chunk));
  }
  /// The caller of a rank, whose call has ended, reads the outputs, and may do what it likes with its buffers.
  constexpr void endCall(std::int32_t rank) {
    const RankPlan& of = state_.plan.rankPlans[rank];
    for (std::int32_t chunk = 0; chunk < of.outputChunks && !state_.fault; ++chunk)
      endUse(BufferKind::Output, rank, chunk);
    for (std::int32_t chunk = 0; chunk < of.inputChunks && !state_.fault; ++chunk)
      endUse(BufferKind::Input, rank, chunk);
  }

  /// A transfer of a block of the plan. Returns false if it waits for packets, or if there is a fault. Without
  /// `checkPositions`, Operation::position is not looked at.
  constexpr bool transfer(std::int32_t index, const Operation& operation, bool checkPositions) {
    checkPositions_ = checkPositions;
    SimulationState::BlockState& block = state_.blocks[index];
    const std::vector<std::int32_t> cells =
        layout_.select(block.iteration, iterations_[block.call], operation.share, operation.shares);
    if (!havePacketsArrived(block, operation, cells)) return false;
    const Operand& destination = state_.plan.operands[operation.destinations.first];
    Port* port = nullptr;
    if (destination.access == Access::Port) {
      if (state_.plan.operands[operation.sources.first].form == Form::Packet) {
        // The threads wait for the packets, then for each other.
        for (std::int32_t i = 0; i < operation.chunks; ++i)
          for (const std::int32_t c : cells) readPackets(block, operation, i, pieceOf(block, operation, i, c));
        state_.synchronise(index);
      }
      port = &state_.push(index, state_.plan.rankPlans[block.rank].channels.first + destination.channel);
      ++port->interval;
    }
    const std::int32_t instance = ++instances_;
    for (std::int32_t i = 0; i < operation.chunks; ++i)
      for (const std::int32_t c : cells)
        if (!state_.fault) transferCell(index, operation, i, c, instance, port);
    if (port != nullptr) {
      port->clock.enter(port->actor, port->interval);
      state_.ports.finish(*port, block.interval, state_.snapshots);
    }
    return !state_.fault;
  }

 private:
  /// What is ordered before an access: see Clock.
  struct Order {
    const std::vector<std::int32_t>& strong;
    const std::vector<std::int32_t>& weak;
  };

  constexpr void endUse(BufferKind buffer, std::int32_t rank, std::int32_t chunk) {
    const std::int32_t call = state_.callerCalls[rank], position = chunkPosition(state_.plan, chunk);
    if (state_.pair != nullptr && !state_.pair->later.isSameData({call, position, 0})) return;
    const Order order{state_.callers[rank].strong, state_.callers[rank].weak};
    std::vector<std::int32_t> expected;
    if (buffer == BufferKind::Output) expected = values_.expected(call, rank, chunk);
    const std::int32_t index = contents_.chunk(buffer, rank, chunk, call);
    state_.locate({buffer, rank, chunk, call});
    for (std::int32_t c = 0; c < cellsOf(call) && !state_.fault; ++c) {
      const Piece piece{call, position, c};
      if (!state_.isChecked(piece)) continue;
      const DataAccess access{state_.callerActor(rank), 2 * call + 2, ++instances_, -1, -1, false, piece};
      const Cell& cell = contents_.at(index, c).cell;
      if (!expected.empty() && cell.value < 0) return state_.reportAt(FaultKind::Uninitialised, -1, rank);
      if (!isOrdered(cell.write, access, order))
        state_.reportOrder(expected.empty() ? FaultKind::AccessAfterCall : FaultKind::ReadBeforeWrite, access,
                           cell.write);
      for (const DataAccess& earlier : cell.reads)
        if (!isOrdered(earlier, access, order)) state_.reportOrder(FaultKind::AccessAfterCall, access, earlier);
      if (state_.pair == nullptr && !expected.empty() && values_[cell.value].contributions != expected)
        state_.reportConflict(FaultKind::WrongResult, access, cell.write);
    }
  }

  /// The cells of a chunk that the message of a call has.
  constexpr std::int32_t cellsOf(std::int32_t call) const { return layout_.cells(iterations_[call]); }

  /// What a transfer moves as cell `cell` of its i-th chunks.
  constexpr Piece pieceOf(const SimulationState::BlockState& block, const Operation& operation, std::int32_t i,
                          std::int32_t cell) const {
    return {block.call, (operation.position + i) % state_.plan.chunksPerPart, cell};
  }

  /// Calls f(index of the chunk, rank) for chunk i of an operand: at its rank, or at each member of its switch channel.
  template <class F>
  constexpr void forEachPlace(const SimulationState::BlockState& block, const Operand& operand, std::int32_t i, F&& f) {
    const std::int32_t chunk = operand.first + i;
    const auto visit = [&](std::int32_t rank) {
      state_.locate({operand.buffer, rank, chunk, block.call});
      f(contents_.chunk(operand.buffer, rank, chunk, block.call), rank);
    };
    if (operand.access != Access::Switch) return visit(operand.rank);
    const Channel& channel = state_.plan.channels[state_.plan.rankPlans[block.rank].channels.first + operand.channel];
    for (std::int32_t k = 0; k < channel.members.count; ++k) visit(state_.plan.references[channel.members.first + k]);
  }
  template <class F>
  constexpr void forEachOperand(Range range, F&& f) {
    for (std::int32_t i = range.first; i < range.first + range.count && !state_.fault; ++i) f(state_.plan.operands[i]);
  }

  constexpr bool havePacketsArrived(const SimulationState::BlockState& block, const Operation& operation,
                                    const std::vector<std::int32_t>& cells) {
    bool arrived = true;
    forEachOperand(operation.sources, [&](const Operand& operand) {
      if (operand.form != Form::Packet) return;
      for (std::int32_t i = 0; i < operation.chunks && arrived; ++i)
        forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t) {
          for (const std::int32_t c : cells)
            if (state_.pair == nullptr || state_.isPresent(pieceOf(block, operation, i, c)))
              arrived &= contents_.at(chunk, c).cell.packetCall >= block.call;
        });
    });
    return arrived;
  }

  /// What the packets tell that the transfer reads.
  constexpr void readPackets(SimulationState::BlockState& block, const Operation& operation, std::int32_t i,
                             const Piece& piece) {
    if (!state_.isPresent(piece)) return;
    forEachOperand(operation.sources, [&](const Operand& operand) {
      if (operand.form != Form::Packet) return;
      forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t) {
        const std::int32_t clock = contents_.at(chunk, piece.cell).cell.packetClock;
        if (clock < 0) return;
        SimulationState::BlockState::Known* known = findKnown(block, operation, piece);
        if (known == nullptr) {
          block.known.push_back({piece, SimulationState::divisionOf(block, operation), block.clock.weak});
          known = &block.known.back();
        }
        Clock::raise(known->weak, state_.snapshots[clock].weak);
        block.pending.mergeWeak(state_.snapshots[clock]);
        state_.steps += 2 * block.clock.size();
      });
    });
  }
  static constexpr SimulationState::BlockState::Known* findKnown(SimulationState::BlockState& block,
                                                                 const Operation& operation, const Piece& piece) {
    for (auto& known : block.known)
      if (known.piece == piece && known.division == SimulationState::divisionOf(block, operation)) return &known;
    return nullptr;
  }
  /// A number for reads of the earlier piece of a pair; 0 where other threads may have read the same bytes before.
  static constexpr std::int32_t certify(SimulationState::BlockState& block, const Operation& operation) {
    const std::int32_t division = SimulationState::divisionOf(block, operation);
    if (block.certified == 0) block.certified = division;
    return block.certified == division ? ++block.certificates : 0;
  }

  constexpr void transferCell(std::int32_t index, const Operation& operation, std::int32_t i, std::int32_t c,
                              std::int32_t instance, Port* port) {
    SimulationState::BlockState& block = state_.blocks[index];
    Piece piece = pieceOf(block, operation, i, c);
    std::int32_t value = 0;
    if (state_.pair == nullptr) {
      value = resultOf(index, operation, i, piece);
      if (state_.fault) return;
    } else if (!state_.isPresent(piece)) {
      return;
    }
    DataAccess access{index, block.interval, instance, index, block.next, false, piece};
    const bool isEarlier = state_.pair != nullptr && piece == state_.pair->earlier;
    if (port != nullptr) {
      access.actor = port->actor;
      access.interval = port->interval;
      if (isEarlier) access.certificate = ++port->certificates;  // a port does one transfer after the other
    } else {
      readPackets(block, operation, i, piece);
      if (isEarlier) access.certificate = certify(block, operation);
    }
    const Clock& clock = port != nullptr ? port->clock : block.clock;
    const auto* known = port != nullptr ? nullptr : findKnown(block, operation, piece);
    const Order order{clock.strong, known != nullptr ? known->weak : clock.weak};

    if (state_.isChecked(piece))
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
        if (operand.buffer == BufferKind::Input && !state_.plan.inPlace)
          return state_.reportAt(FaultKind::InputOverwritten, index, block.rank);
        if (state_.pair == nullptr && isPacket && cell.packetCall >= block.call)
          return state_.reportConflict(FaultKind::PacketWrittenTwice, access, cell.write);
        if (state_.isChecked(piece)) {
          requireCall(operand, rank, access, order);
          write(chunk, access, order, value);
        }
        if (!isPacket) return;
        if (packetClock < 0 && state_.isPresent(piece)) packetClock = packetSnapshot(block, order, access);
        cell.packetCall = block.call;
        state_.snapshots.drop(cell.packetClock);
        cell.packetClock = packetClock < 0 ? -1 : state_.snapshots.keep(packetClock);
      });
    });
    state_.snapshots.drop(packetClock);
  }

  /// The value that a transfer stores in a cell of its i-th chunks. Sets the position of `piece` to that of the data.
  constexpr std::int32_t resultOf(std::int32_t index, const Operation& operation, std::int32_t i, Piece& piece) {
    const SimulationState::BlockState& block = state_.blocks[index];
    std::vector<std::int32_t> terms;
    forEachOperand(operation.sources, [&](const Operand& operand) {
      forEachPlace(block, operand, i, [&](std::int32_t chunk, std::int32_t rank) {
        const Contents::Place place = contents_.at(chunk, piece.cell);
        requireRunning(operand, rank, index);
        if (state_.fault) return;
        // What is wrong with data of a later call is told when it is read.
        if (place.cell.value < 0 || place.cell.write.piece.call < block.call)
          return state_.report(FaultKind::Uninitialised, index, block.next);
        terms.push_back(place.cell.value);
      });
    });
    if (state_.fault) return -1;
    piece.position = values_[terms[0]].position;
    for (const std::int32_t term : terms)
      if (values_[term].position != piece.position)
        return state_.report(FaultKind::MixedPositions, index, block.next), -1;
    const std::int32_t found =
        (state_.plan.chunksPerPart + piece.position - i % state_.plan.chunksPerPart) % state_.plan.chunksPerPart;
    std::int32_t& position = positions_[state_.plan.blocks[index].operations.first + block.next];
    if (position < 0) position = found;
    if (position != found) return state_.report(FaultKind::MixedPositions, index, block.next), -1;
    if (checkPositions_ && operation.position != found)
      return state_.report(FaultKind::WrongPosition, index, block.next), -1;
    forEachOperand(operation.destinations, [&](const Operand& operand) {
      if (operand.buffer == BufferKind::Scratch || chunkPosition(state_.plan, operand.first + i) == piece.position)
        return;
      state_.locate({operand.buffer, operand.rank, operand.first + i, block.call});
      state_.reportAt(FaultKind::MixedPositions, index, block.rank);
    });
    const std::int32_t sum = values_.sum(terms);
    state_.numbers = values_.terms();
    return sum;
  }

  /// What is told by packets that a transfer writes.
  constexpr std::int32_t packetSnapshot(SimulationState::BlockState& block, const Order& order,
                                        const DataAccess& access) {
    if (&order.weak == &block.clock.weak && access.certificate == 0) return state_.snapshotOf(block);
    Clock clock;
    clock.weak = order.weak;
    if (access.certificate > 0) clock.weak[state_.certificateActor(access.actor)] = access.certificate;
    return state_.snapshots.add(clock);
  }

  /// Another rank's input and output may be accessed while its call runs.
  constexpr void requireRunning(const Operand& operand, std::int32_t rank, std::int32_t index) {
    const std::int32_t call = state_.blocks[index].call;
    if (operand.buffer == BufferKind::Scratch || state_.callerCalls[rank] == call) return;
    state_.reportAt(state_.callerCalls[rank] < call ? FaultKind::AccessBeforeCall : FaultKind::AccessAfterCall, index,
                    state_.rankOf(index));
  }
  constexpr void requireCall(const Operand& operand, std::int32_t rank, const DataAccess& access, const Order& order) {
    const std::int32_t call = access.piece.call;
    if (operand.buffer == BufferKind::Scratch || rank == state_.rankOf(access.block)) return;
    requireRunning(operand, rank, access.block);
    if (state_.fault) return;
    const DataAccess begin{state_.callerActor(rank), 2 * call + 1, 0, -1, -1, false, access.piece};
    if (!isOrdered(begin, access, order)) state_.reportOrder(FaultKind::AccessBeforeCall, access, begin);
  }

  constexpr void read(const Contents::Place& place, bool isPacket, const DataAccess& access, const Order& order) {
    if (state_.fault) return;
    if (!place.strip.holds.isSameData(access.piece)) {
      if (place.strip.holds.call < access.piece.call)
        return state_.report(FaultKind::Uninitialised, access.block, access.operation);
      // Data of a later call came too early; of one call, which data should come first is not known.
      if (place.strip.holds.call == access.piece.call && !isPacket && !isOrdered(place.strip.write, access, order))
        return state_.reportConflict(FaultKind::ReadBeforeWrite, access, place.strip.write);
      return state_.reportConflict(FaultKind::WriteBeforeRead, place.strip.write, access);
    }
    if (!isPacket && !isOrdered(place.cell.write, access, order))
      state_.reportOrder(FaultKind::ReadBeforeWrite, access, place.cell.write);
    place.cell.reads.push_back(access);
    ++state_.steps;
  }

  constexpr void write(std::int32_t chunk, const DataAccess& access, const Order& order, std::int32_t value) {
    if (state_.fault) return;
    const Contents::Place place = contents_.at(chunk, access.piece.cell);
    Cell& cell = place.cell;
    Strip& strip = place.strip;
    if (!strip.holds.isSameData(access.piece)) {
      if (strip.holds.call > access.piece.call)
        return state_.reportConflict(FaultKind::WriteBeforeWrite, access, strip.write);
      beginData(chunk, access, strip);
    }
    for (const DataAccess& earlier : strip.before)
      if (!isOrdered(earlier, access, order))
        state_.reportOrder(earlier.isWrite ? FaultKind::WriteBeforeWrite : FaultKind::WriteBeforeRead, access, earlier);
    bool wasRead = false;  // a write after a read of the old write comes after that write
    for (const DataAccess& earlier : cell.reads) {
      if (earlier.instance == access.instance) continue;
      if (!isOrdered(earlier, access, order)) state_.reportOrder(FaultKind::WriteBeforeRead, access, earlier);
      wasRead = true;
    }
    if (cell.value >= 0 && !wasRead && cell.write.piece.isSameData(access.piece)) {
      if (cell.write.instance == access.instance)
        return state_.reportConflict(FaultKind::WriteBeforeWrite, access, cell.write);
      if (!isOrdered(cell.write, access, order)) state_.reportOrder(FaultKind::WriteBeforeWrite, access, cell.write);
    }
    state_.steps += 1 + strip.before.size() + cell.reads.size();
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
           (earlier.certificate > 0 && order.weak[state_.certificateActor(earlier.actor)] >= earlier.certificate);
  }

  SimulationState& state_;
  const std::vector<std::int32_t>& iterations_;
  CellLayout layout_;
  Values values_;
  Contents contents_;
  std::vector<std::int32_t> positions_;
  std::int32_t instances_ = 0;
  bool checkPositions_ = true;
};

}  // namespace mscclpp::plan
