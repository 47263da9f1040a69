// Random chunk programs for all collectives: trees of random shape, staged copies, pieces of random size.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
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
    chooseCollective();
    sums_ = collective_.kind == CollectiveKind::Custom ? randomSums() : sumsOfCollective();
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
    if (!mixes) std::shuffle(sequences_.begin(), sequences_.end(), random_);
    mixSequences(mixes);
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

  void chooseCollective() {
    constexpr CollectiveKind kinds[] = {
        CollectiveKind::AllReduce,   CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
        CollectiveKind::Broadcast,   CollectiveKind::Reduce,    CollectiveKind::Gather,        CollectiveKind::Scatter,
        CollectiveKind::SendReceive, CollectiveKind::Custom};
    collective_.kind = kinds[below(10)];
    collective_.ranks = ranks_;
    collective_.chunkFactor = 1 + below(3);
    // In place these would overwrite what others have yet to read.
    const bool exchanges = collective_.kind == CollectiveKind::AllToAll ||
                           collective_.kind == CollectiveKind::SendReceive ||
                           collective_.kind == CollectiveKind::Custom;
    collective_.inPlace = !exchanges && chance(2);
    const bool rooted = collective_.kind == CollectiveKind::Broadcast || collective_.kind == CollectiveKind::Reduce ||
                        collective_.kind == CollectiveKind::Gather || collective_.kind == CollectiveKind::Scatter;
    if (rooted) collective_.root = below(ranks_);
    if (collective_.kind == CollectiveKind::Custom) {
      collective_.inputChunks = 1 + below(4);
      collective_.outputChunks = 1 + below(4);
    }
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

  std::vector<PartSum> randomSums() {
    std::vector<std::pair<int, int>> all;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int chunk = 0; chunk < collective_.inputChunks; ++chunk) all.emplace_back(rank, chunk);
    }
    std::vector<PartSum> sums;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int chunk = 0; chunk < collective_.outputChunks; ++chunk) {
        std::shuffle(all.begin(), all.end(), random_);
        sums.push_back({rank, chunk, {all.begin(), all.begin() + 1 + below(std::min<int>(4, plan::countOf(all)))}});
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
