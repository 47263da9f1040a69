// Random chunk programs for all collectives: trees of random shape, staged copies, pieces of random size.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mscclpp/kernels/plan/chunk_program.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::msccl {

/// Part `part` of the output of a rank is the sum of these (rank, part of its input).
struct PartSum {
  int rank, part;
  std::vector<std::pair<int, int>> terms;
};

/// A program, and what it computes. The same seed makes the same program everywhere.
class RandomProgram {
 public:
  RandomProgram(int ranks, unsigned seed) : random_(seed), ranks_(ranks) {
    if (chance(2)) {
      wander();
    } else {
      chooseCollective();
      followTrees();
    }
  }

  const Collective& collective() const { return collective_; }
  const std::vector<PartSum>& sums() const { return sums_; }

  /// options.collective: collective().
  MSCCLProgram program(const ProgramOptions& options) const {
    MSCCLProgram program(options);
    for (const Move& move : moves_) {
      const ChunkRef from = program.chunk(move.from.rank, move.from.buffer, move.from.index, move.size);
      if (move.reduces) {
        program.chunk(move.to.rank, move.to.buffer, move.to.index, move.size).reduce(from);
      } else {
        from.copy(move.to.rank, move.to.buffer, move.to.index);
      }
    }
    if (collective_.kind == CollectiveKind::Custom) {
      for (const PartSum& sum : sums_) program.expect(sum.rank, sum.part, sum.terms);
    }
    return program;
  }

 private:
  using CollectiveKind = plan::CollectiveKind;
  struct Place {
    int rank;
    std::string buffer;
    int index;
  };
  struct Move {
    bool reduces;
    Place from, to;
    int size;
  };

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool chance(int oneIn) { return below(oneIn) == 0; }

  /// A custom collective: any operations that the language allows, and what they come to.
  void wander() {
    collective_.kind = CollectiveKind::Custom;
    collective_.ranks = ranks_;
    collective_.inPlace = chance(3);
    collective_.inputChunks = 1 + below(4);
    collective_.outputChunks = collective_.inPlace ? collective_.inputChunks : 1 + below(4);
    const std::map<std::string, int> chunks{
        {"input", collective_.inputChunks}, {"output", collective_.outputChunks}, {"a", 3}, {"b", 1}};
    const auto randomPlace = [&](bool mayBeInput) {
      const char* const buffers[] = {"output", "a", "b", "input"};
      const std::string buffer = buffers[below(mayBeInput || collective_.inPlace ? 4 : 3)];
      return Place{below(ranks_), buffer, below(chunks.at(buffer))};
    };
    std::map<std::tuple<int, std::string, int>, std::set<std::pair<int, int>>> held;
    const auto heldAt = [&](const Place& place, int i) -> std::set<std::pair<int, int>>& {
      const bool isInput = collective_.inPlace && place.buffer == "output";
      return held[{place.rank, isInput ? "input" : place.buffer, place.index + i}];
    };
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int i = 0; i < collective_.inputChunks; ++i) heldAt({rank, "input", 0}, i) = {{rank, i}};
    }
    const int tries = 10 + below(50);
    for (int i = 0; i < tries; ++i) {
      Move move{chance(3), randomPlace(true), randomPlace(false), 1 + below(2)};
      if (chance(2)) move.to.rank = move.from.rank;
      bool isPossible = move.from.index + move.size <= chunks.at(move.from.buffer) &&
                        move.to.index + move.size <= chunks.at(move.to.buffer);
      std::vector<std::set<std::pair<int, int>>> results;
      for (int k = 0; k < move.size && isPossible; ++k) {
        auto result = heldAt(move.from, k);
        const auto& before = heldAt(move.to, k);
        isPossible = !result.empty() && (!move.reduces || !before.empty());
        for (int other = 0; other < move.size; ++other) {
          isPossible = isPossible && &heldAt(move.from, k) != &heldAt(move.to, other);
        }
        const std::size_t terms = result.size() + (move.reduces ? before.size() : 0);
        if (move.reduces) result.insert(before.begin(), before.end());
        isPossible = isPossible && result.size() == terms;
        results.push_back(std::move(result));
      }
      if (!isPossible) continue;
      for (int k = 0; k < move.size; ++k) heldAt(move.to, k) = results[static_cast<std::size_t>(k)];
      moves_.push_back(move);
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int i = 0; i < collective_.outputChunks; ++i) {
        auto& terms = heldAt({rank, "output", 0}, i);
        if (terms.empty()) {
          terms = {{rank, 0}};
          moves_.push_back({false, {rank, "input", 0}, {rank, "output", i}, 1});
        }
        sums_.push_back({rank, i, {terms.begin(), terms.end()}});
      }
    }
  }

  void chooseCollective() {
    constexpr CollectiveKind kinds[] = {
        CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,  CollectiveKind::Broadcast, CollectiveKind::Reduce,
        CollectiveKind::Gather,    CollectiveKind::Scatter,   CollectiveKind::SendReceive};
    collective_.kind = kinds[below(9)];
    collective_.ranks = ranks_;
    collective_.chunkFactor = 1 + below(3);
    // In place these would overwrite what others have yet to read.
    const bool exchanges =
        collective_.kind == CollectiveKind::AllToAll || collective_.kind == CollectiveKind::SendReceive;
    collective_.inPlace = !exchanges && chance(2);
    const bool rooted = collective_.kind == CollectiveKind::Broadcast || collective_.kind == CollectiveKind::Reduce ||
                        collective_.kind == CollectiveKind::Gather || collective_.kind == CollectiveKind::Scatter;
    if (rooted) collective_.root = below(ranks_);
  }

  /// The sums of the collective, each by ways of its own.
  void followTrees() {
    sums_ = sumsOfCollective();
    const bool mixes = chance(2);  // operations of different sums lie between each other
    std::map<std::vector<std::pair<int, int>>, std::vector<std::pair<int, int>>> results;
    for (const PartSum& sum : sums_) results[sum.terms].emplace_back(sum.rank, sum.part);
    for (const auto& [terms, parts] : results) {
      const int chunks = collective_.chunksPerPart();
      for (int first = 0; first < chunks; first += size_) {
        size_ = 1 + below(chunks - first);
        sequences_.emplace_back();
        // What is not mixed may use scratch again.
        if (!mixes && chance(3)) nextScratch_ = 0;
        addUp(terms, parts, first);
      }
    }
    mixSequences(mixes);
  }

  std::vector<PartSum> sumsOfCollective() const {
    const CollectiveKind kind = collective_.kind;
    std::vector<std::pair<int, int>> all;
    for (int rank = 0; rank < ranks_; ++rank) all.emplace_back(rank, 0);
    std::vector<PartSum> sums;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (kind == CollectiveKind::AllReduce) sums.push_back({rank, 0, all});
      if (kind == CollectiveKind::Reduce && rank == collective_.root) sums.push_back({rank, 0, all});
      if (kind == CollectiveKind::Broadcast) sums.push_back({rank, 0, {{collective_.root, 0}}});
      if (kind == CollectiveKind::Scatter) sums.push_back({rank, 0, {{collective_.root, rank}}});
      if (kind == CollectiveKind::SendReceive) sums.push_back({rank, 0, {{(rank + ranks_ - 1) % ranks_, 0}}});
      if (kind == CollectiveKind::ReduceScatter) {
        sums.push_back({rank, 0, all});
        for (auto& term : sums.back().terms) term.second = rank;
      }
      for (int part = 0; part < ranks_; ++part) {
        if (kind == CollectiveKind::AllToAll) sums.push_back({rank, part, {{part, rank}}});
        const bool gathers = kind == CollectiveKind::Gather && rank == collective_.root;
        if (kind == CollectiveKind::AllGather || gathers) sums.push_back({rank, part, {{part, 0}}});
      }
    }
    return sums;
  }

  /// The sum of `terms`, of size_ chunks of the parts from chunk `first` on, to all of `results`.
  void addUp(std::vector<std::pair<int, int>> terms, std::vector<std::pair<int, int>> results, int first) {
    const int chunks = collective_.chunksPerPart();
    const auto input = [&](const std::pair<int, int>& at) {
      return Place{at.first, "input", at.second * chunks + first};
    };
    const auto output = [&](const std::pair<int, int>& at) {
      return Place{at.first, "output", at.second * chunks + first};
    };
    std::shuffle(terms.begin(), terms.end(), random_);
    std::shuffle(results.begin(), results.end(), random_);
    // In place the sum begins where one of its terms is.
    const auto start = std::find_if(results.begin(), results.end(), [&](const auto& result) {
      return std::any_of(terms.begin(), terms.end(), [&](const auto& term) { return term.first == result.first; });
    });
    if (start != results.end()) {
      std::swap(*start, results.front());
      const auto own = std::find_if(terms.begin(), terms.end(),
                                    [&](const auto& term) { return term.first == results.front().first; });
      std::swap(*own, terms.front());
    }
    const Place sum = output(results.front());
    if (!collective_.inPlace || start == results.end()) send(false, input(terms.front()), sum);
    for (std::size_t i = 1; i < terms.size(); ++i) send(true, input(terms[i]), sum);
    std::vector<Place> have{sum};
    for (std::size_t i = 1; i < results.size(); ++i) {
      send(false, have[static_cast<std::size_t>(below(static_cast<int>(have.size())))], output(results[i]));
      have.push_back(output(results[i]));
    }
  }

  /// From one place to another, perhaps through scratch of any ranks, and there and back.
  void send(bool reduces, Place from, const Place& to) {
    while (chance(3)) {
      const Place staged{chance(2) ? to.rank : below(ranks_), chance(2) ? "a" : "b", nextScratch_};
      nextScratch_ += size_;
      add(false, from, staged);
      if (from.buffer != "input" && from.buffer != "output" && chance(3)) add(false, staged, from);
      from = staged;
    }
    add(reduces, from, to);
  }
  void add(bool reduces, const Place& from, const Place& to) {
    sequences_.back().push_back({reduces, from, to, size_});
  }

  void mixSequences(bool mixes) {
    std::vector<std::size_t> next(sequences_.size(), 0), open;
    for (std::size_t s = 0; s < sequences_.size(); ++s) open.push_back(s);
    while (!open.empty()) {
      const std::size_t at = mixes ? static_cast<std::size_t>(below(static_cast<int>(open.size()))) : 0;
      const std::size_t s = open[at];
      if (next[s] < sequences_[s].size()) moves_.push_back(sequences_[s][next[s]++]);
      if (next[s] == sequences_[s].size()) open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  std::mt19937 random_;
  int ranks_;
  Collective collective_;
  std::vector<PartSum> sums_;
  std::vector<std::vector<Move>> sequences_;  ///< of each sum
  std::vector<Move> moves_;
  int size_ = 1;         ///< chunks of the operations that are made
  int nextScratch_ = 0;  ///< chunks of scratch that are used
};

}  // namespace mscclpp::msccl
