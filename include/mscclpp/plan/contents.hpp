// What the chunks of a simulated plan hold, and who read and wrote them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mscclpp/plan/cells.hpp"
#include "mscclpp/plan/overlap.hpp"
#include "mscclpp/plan/piece.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// A read or a write.
struct DataAccess {
  std::int32_t actor = -1;  ///< who: see Clock
  std::int32_t interval = 0;
  std::int32_t instance = -1;  ///< which execution of which operation
  std::int32_t block = -1;     ///< of the plan; -1: the caller
  std::int32_t operation = -1;
  bool isWrite = false;
  Piece piece;
  std::int32_t certificate = 0;  ///< see Simulation: of those of its block; 0: none
};

/// A part of a chunk that operations read and write whole.
struct Cell {
  std::int32_t value = -1;  ///< an index into Values; -1: nobody wrote it
  DataAccess write;
  std::vector<DataAccess> reads;  ///< since the write
  std::int32_t packetClock = -1;  ///< what is ordered before the write, if it wrote packets: the number of a snapshot
  std::int32_t packetCall = -1;   ///< -1: plain data
};

/// The cells of an iteration of a chunk. Scratch holds data of several calls and positions, whose cells lie in it in
/// different ways, since messages and chunks differ in size.
struct Strip {
  Piece holds;                     ///< call and position of its latest data
  DataAccess write;                ///< the first of that data
  std::vector<DataAccess> before;  ///< accesses to earlier data
};

/// Sums of input chunks.
class Values {
 public:
  struct Value {
    /// An entry for each contribution, sorted: input(call, rank, chunk).
    std::vector<std::int32_t> contributions;
    std::int32_t position = 0;
  };

  constexpr explicit Values(const Plan& plan) : plan_(plan), mostTerms_(plan.ranks) {
    for (const RankPlan& rank : plan.rankPlans) inputChunks_ = std::max(inputChunks_, rank.inputChunks);
    for (const Expectation& expectation : plan.expectations)
      mostTerms_ = std::max(mostTerms_, expectation.contributions.count / 2);
  }

  constexpr std::int32_t input(std::int32_t call, std::int32_t rank, std::int32_t chunk) const {
    return (call * plan_.ranks + rank) * inputChunks_ + chunk;
  }
  constexpr std::int32_t add(Value value) {
    values_.push_back(std::move(value));
    return countOf(values_) - 1;
  }
  constexpr std::int32_t addInput(std::int32_t call, std::int32_t rank, std::int32_t chunk) {
    return add({{input(call, rank, chunk)}, chunkPosition(plan_, chunk)});
  }
  /// Requires equal positions. Of what has more contributions than any output is to have, only that is remembered.
  constexpr std::int32_t sum(const std::vector<std::int32_t>& terms) {
    if (terms.size() == 1) return terms[0];
    Value value;
    value.position = values_[terms[0]].position;
    for (const std::int32_t term : terms) {
      const auto& more = values_[term].contributions;
      if (more == tooMany || countOf(value.contributions) + countOf(more) > mostTerms_) {
        value.contributions = tooMany;
        break;
      }
      value.contributions.insert(value.contributions.end(), more.begin(), more.end());
    }
    terms_ += value.contributions.size();
    std::sort(value.contributions.begin(), value.contributions.end());
    return add(std::move(value));
  }
  constexpr const Value& operator[](std::int32_t value) const { return values_[value]; }
  /// The contributions of all values, about.
  constexpr std::uint64_t terms() const { return terms_ + values_.size(); }

  /// The contributions that output chunk `chunk` of `rank` is to hold; empty: the collective does not define it.
  constexpr std::vector<std::int32_t> expected(std::int32_t call, std::int32_t rank, std::int32_t chunk) const {
    const std::int32_t part = chunk / plan_.chunksPerPart, position = chunk % plan_.chunksPerPart;
    const std::int32_t own = rank * plan_.chunksPerPart + position;
    std::vector<std::int32_t> list;
    switch (plan_.collective) {
      case CollectiveKind::AllReduce:
      case CollectiveKind::Reduce:
        for (std::int32_t origin = 0; origin < plan_.ranks; ++origin) list.push_back(input(call, origin, chunk));
        break;
      case CollectiveKind::ReduceScatter:
        for (std::int32_t origin = 0; origin < plan_.ranks; ++origin) list.push_back(input(call, origin, own));
        break;
      case CollectiveKind::AllGather:
      case CollectiveKind::Gather:
        list.push_back(input(call, part, position));
        break;
      case CollectiveKind::AllToAll:
        list.push_back(input(call, part, own));
        break;
      case CollectiveKind::Broadcast:
        list.push_back(input(call, plan_.root, chunk));
        break;
      case CollectiveKind::Scatter:
        list.push_back(input(call, plan_.root, own));
        break;
      case CollectiveKind::SendReceive:
        list.push_back(input(call, (rank + plan_.ranks - 1) % plan_.ranks, chunk));
        break;
      case CollectiveKind::Custom:
        for (const Expectation& expectation : plan_.expectations) {
          if (expectation.rank != rank || expectation.chunk != chunk) continue;
          for (std::int32_t i = 0; i < expectation.contributions.count; i += 2) {
            const std::int32_t* pair = &plan_.references[expectation.contributions.first + i];
            list.push_back(input(call, pair[0], pair[1]));
          }
        }
        break;
    }
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  const Plan& plan_;
  const std::vector<std::int32_t> tooMany{-1};
  std::int32_t mostTerms_;
  std::int32_t inputChunks_ = 1;
  std::uint64_t terms_ = 0;
  std::vector<Value> values_;
};

/// The cells of all buffers of all ranks.
class Contents {
 public:
  /// A cell, and where it lies.
  struct Place {
    Cell& cell;
    Strip& strip;
  };

  constexpr Contents(const Plan& plan, const CellLayout& layout) : plan_(plan), layout_(layout) {
    std::int32_t next = 0;
    for (const RankPlan& rank : plan.rankPlans) {
      firsts_.push_back(next);
      next += rank.inputChunks + rank.outputChunks + scratchSets() * rank.scratchChunks;
    }
    cells_.resize(static_cast<std::size_t>(next) * layout.cells());
    strips_.resize(static_cast<std::size_t>(next) * layout.iterations());
  }

  /// Where a chunk lies for an operation of call `call`.
  constexpr std::int32_t chunk(BufferKind buffer, std::int32_t rank, std::int32_t chunk, std::int32_t call) const {
    const RankPlan& of = plan_.rankPlans[rank];
    if (buffer == BufferKind::Output && plan_.inPlace) {
      const std::int32_t input = inputOfOutput(plan_, of.inputChunks, rank, chunk);
      if (input >= 0) {
        buffer = BufferKind::Input;
        chunk = input;
      }
    }
    std::int32_t index = firsts_[rank] + chunk;
    if (buffer != BufferKind::Input) index += of.inputChunks;
    if (buffer == BufferKind::Scratch) index += of.outputChunks + (call % scratchSets()) * of.scratchChunks;
    return index;
  }
  /// A cell of the chunk with this index.
  constexpr Place at(std::int32_t index, std::int32_t cell) {
    return {cells_[static_cast<std::size_t>(index) * layout_.cells() + cell],
            strips_[static_cast<std::size_t>(index) * layout_.iterations() + layout_.iterationOf(cell)]};
  }
  /// The first of the cells that lie in the strip of a cell.
  constexpr Cell* stripOf(std::int32_t index, std::int32_t cell) {
    const std::int32_t perIteration = layout_.cells() / layout_.iterations();
    return &cells_[static_cast<std::size_t>(index) * layout_.cells() + cell / perIteration * perIteration];
  }

 private:
  constexpr std::int32_t scratchSets() const { return plan_.doubleScratch ? 2 : 1; }

  const Plan& plan_;
  const CellLayout& layout_;
  std::vector<std::int32_t> firsts_;
  std::vector<Cell> cells_;
  std::vector<Strip> strips_;
};

}  // namespace mscclpp::plan
