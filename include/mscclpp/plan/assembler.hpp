// Makes lowered plans, one operation at a time: the lowest layer, which the languages and the importers write to.
#pragma once

#include <initializer_list>
#include <span>
#include <utility>

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// Collects the operations of each block of each rank, in any order of ranks and blocks, and makes a Plan of them.
/// Usable in constant expressions. It does not judge what it is given: plan/check.hpp does.
class Assembler {
 public:
  /// Input and output chunks of each rank follow from the header, for all collectives but Custom.
  constexpr explicit Assembler(const Header& header) : header_(header) {
    ranks_.resize(header.ranks);
    for (int rank = 0; rank < header.ranks; ++rank)
      setChunks(rank, inputChunksOf(header, rank), outputChunksOf(header, rank));
  }

  constexpr const Header& header() const { return header_; }

  constexpr void setScratchChunks(int rank, int chunks) { ranks_[rank].plan.scratchChunks = chunks; }
  /// Custom collectives: the numbers of chunks of a rank's buffers.
  constexpr void setChunks(int rank, int inputChunks, int outputChunks) {
    ranks_[rank].plan.inputChunks = inputChunks;
    ranks_[rank].plan.outputChunks = outputChunks;
  }
  constexpr void expect(int rank, int chunk, std::span<const std::pair<int, int>> contributions) {
    Expectation expectation{static_cast<std::int16_t>(rank), chunk, {countOf(references_), 0}};
    for (const auto& [origin, index] : contributions) {
      references_.push_back(origin);
      references_.push_back(index);
    }
    expectation.contributions.count = 2 * countOf(contributions);
    expectations_.push_back(expectation);
  }

  /// A further channel of `rank`; returns its number among the channels of the rank.
  constexpr int addChannel(int rank, Access access, int peer) {
    ranks_[rank].channels.push_back({.access = access, .peer = static_cast<std::int16_t>(peer)});
    return countOf(ranks_[rank].channels) - 1;
  }
  constexpr int addSwitchChannel(int rank, BufferKind buffer, std::span<const int> members) {
    ranks_[rank].channels.push_back({.access = Access::Switch,
                                     .peer = static_cast<std::int16_t>(rank),
                                     .buffer = buffer,
                                     .members = refer(members)});
    return countOf(ranks_[rank].channels) - 1;
  }
  /// A further device semaphore of `rank`; returns its number.
  constexpr int addSemaphore(int rank, int initialValue) {
    ranks_[rank].semaphores.push_back(initialValue);
    return countOf(ranks_[rank].semaphores) - 1;
  }

  /// Appends an operation to a block. Its ranges are set from the lists; everything else is as in `operation`.
  constexpr void transfer(int rank, int block, std::span<const Operand> sources, std::span<const Operand> destinations,
                          int chunks, Operation operation = {}) {
    operation.kind = OperationKind::Transfer;
    operation.chunks = chunks;
    operation.sources = append(sources);
    operation.destinations = append(destinations);
    add(rank, block, operation);
  }
  /// Signal, Wait, Flush, Acquire, Release.
  constexpr void synchronise(int rank, int block, OperationKind kind, std::span<const int> references,
                             Operation operation = {}) {
    operation.kind = kind;
    operation.references = refer(references);
    add(rank, block, operation);
  }
  /// Sync, Barrier, LoopBegin, LoopEnd.
  constexpr void add(int rank, int block, const Operation& operation) {
    auto& blocks = ranks_[rank].blocks;
    if (countOf(blocks) <= block) blocks.resize(block + 1);
    blocks[block].push_back(operation);
  }

  /// The plan of all that was added. Positions of data (Operation::position) are as given: plan/check.hpp's
  /// setPositions() finds them.
  constexpr Plan finish() const {
    Plan plan;
    static_cast<Header&>(plan) = header_;
    plan.operands = operands_;
    plan.references = references_;
    plan.expectations = expectations_;
    for (const Rank& rank : ranks_) {
      RankPlan rankPlan = rank.plan;
      rankPlan.blocks = {countOf(plan.blocks), countOf(rank.blocks)};
      for (const auto& operations : rank.blocks) {
        plan.blocks.push_back({{countOf(plan.operations), countOf(operations)}});
        plan.operations.insert(plan.operations.end(), operations.begin(), operations.end());
      }
      rankPlan.channels = {countOf(plan.channels), countOf(rank.channels)};
      plan.channels.insert(plan.channels.end(), rank.channels.begin(), rank.channels.end());
      rankPlan.semaphores = {countOf(plan.references), countOf(rank.semaphores)};
      plan.references.insert(plan.references.end(), rank.semaphores.begin(), rank.semaphores.end());
      plan.rankPlans.push_back(rankPlan);
    }
    return plan;
  }

 private:
  struct Rank {
    RankPlan plan;
    std::vector<Channel> channels;
    std::vector<std::int32_t> semaphores;
    std::vector<std::vector<Operation>> blocks;
  };

  constexpr Range append(std::span<const Operand> operands) {
    const Range range{countOf(operands_), countOf(operands)};
    operands_.insert(operands_.end(), operands.begin(), operands.end());
    return range;
  }
  constexpr Range refer(std::span<const int> references) {
    const Range range{countOf(references_), countOf(references)};
    references_.insert(references_.end(), references.begin(), references.end());
    return range;
  }

  Header header_;
  std::vector<Rank> ranks_;
  std::vector<Operand> operands_;
  std::vector<std::int32_t> references_;
  std::vector<Expectation> expectations_;
};

}  // namespace mscclpp::plan
