// Random groups of collectives that move data, and what they deliver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "element_types.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::test {

/// Calls for one Collectives::run(), of bytes at any alignment. The inputs of all calls are one array, and so are their
/// outputs, which have the same size on all ranks.
class MoveGroup {
 public:
  /// sizes: CollectiveCall::count of the calls, of which each is drawn with the same probability.
  MoveGroup(int ranks, int calls, const std::vector<std::size_t>& sizes, unsigned seed) : ranks_(ranks) {
    std::mt19937 random(seed);
    constexpr CollectiveType kinds[] = {CollectiveType::AllGather, CollectiveType::AllToAll, CollectiveType::Broadcast,
                                        CollectiveType::Gather, CollectiveType::Scatter};
    for (int i = 0; i < calls; ++i) {
      Move move{kinds[random() % 5], sizes[random() % sizes.size()]};
      move.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      move.inPlace = move.collective == CollectiveType::AllGather && random() % 2 == 0;
      move.input = take(inputBytes_, random() % 3, hasParts(move) ? move.count * parts() : move.count);
      move.output = take(outputBytes_, random() % 3, isWhole(move) ? move.count : move.count * parts());
      moves_.push_back(move);
    }
  }

  Bytes input(int rank) const {
    Bytes bytes(inputBytes_);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byteAt(rank, i);
    return bytes;
  }
  /// Before the calls: poisoned, but for the own parts of those in place.
  Bytes output(int rank) const {
    Bytes bytes(outputBytes_, poisonByte);
    for (const Move& move : moves_) {
      if (!move.inPlace) continue;
      for (std::size_t i = 0; i < move.count; ++i) bytes[partOf(move, rank) + i] = byteAt(rank, move.input + i);
    }
    return bytes;
  }
  Bytes expected(int rank) const {
    Bytes bytes(outputBytes_, poisonByte);
    const auto deliver = [&](const Move& move, std::size_t at, int from, std::size_t part) {
      for (std::size_t i = 0; i < move.count; ++i) bytes[at + i] = byteAt(from, move.input + part * move.count + i);
    };
    for (const Move& move : moves_) {
      if (isWhole(move)) {
        deliver(move, move.output, move.root, hasParts(move) ? static_cast<std::size_t>(rank) : 0);
      } else if (move.collective != CollectiveType::Gather || move.root == rank) {
        for (int from = 0; from < ranks_; ++from)
          deliver(move, partOf(move, from), from, hasParts(move) ? static_cast<std::size_t>(rank) : 0);
      }
    }
    return bytes;
  }

  std::vector<CollectiveCall> calls(int rank, const void* input, void* output, CUstream_st* stream = nullptr) const {
    std::vector<CollectiveCall> calls;
    for (const Move& move : moves_) {
      auto* const to = static_cast<unsigned char*>(output);
      calls.push_back(
          {.collective = move.collective,
           .input = move.inPlace ? to + partOf(move, rank) : static_cast<const unsigned char*>(input) + move.input,
           .output = to + move.output,
           .count = move.count,
           .type = DataType::UINT8,
           .root = move.root,
           .stream = stream});
    }
    return calls;
  }

 private:
  struct Move {
    CollectiveType collective;
    std::size_t count;
    int root = 0;
    bool inPlace = false;
    std::size_t input = 0;   ///< where its input begins
    std::size_t output = 0;  ///< likewise
  };

  std::size_t parts() const { return static_cast<std::size_t>(ranks_); }
  /// Whether the input has a part for each rank.
  static bool hasParts(const Move& move) {
    return move.collective == CollectiveType::AllToAll || move.collective == CollectiveType::Scatter;
  }
  /// Whether the output has one part, of the root.
  static bool isWhole(const Move& move) {
    return move.collective == CollectiveType::Broadcast || move.collective == CollectiveType::Scatter;
  }
  static std::size_t partOf(const Move& move, int rank) {
    return move.output + static_cast<std::size_t>(rank) * move.count;
  }
  static Bytes::value_type byteAt(int rank, std::size_t i) {
    const auto bits = (static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(rank) * 40'503u) * 2'654'435'761u;
    return static_cast<Bytes::value_type>(bits >> 21);
  }
  /// A place in an array of `total` bytes so far, `shift` bytes off alignment.
  static std::size_t take(std::size_t& total, std::size_t shift, std::size_t bytes) {
    const std::size_t at = total + shift;
    total += (shift + bytes + 2 * 64 - 1) / 64 * 64;
    return at;
  }

  int ranks_;
  std::vector<Move> moves_;
  std::size_t inputBytes_ = 64;
  std::size_t outputBytes_ = 64;
};

}  // namespace mscclpp::test
