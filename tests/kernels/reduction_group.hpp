// Random groups of reductions, and the check of all that they write.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "element_types.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::test {

/// Calls for one Collectives::run(). All arrays of a rank are in one block of memory, of the same size on all ranks,
/// but at places that differ: each rank has alignments of its own.
class ReductionGroup {
 public:
  /// counts: of the calls, of which each is drawn with the same probability, and so are types and operators.
  ReductionGroup(int ranks, int calls, const std::vector<DataType>& types, const std::vector<std::size_t>& counts,
                 unsigned seed)
      : ranks_(ranks) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % limit; };
    constexpr CollectiveType kinds[] = {CollectiveType::AllReduce, CollectiveType::AllReduce,
                                        CollectiveType::ReduceScatter, CollectiveType::Reduce};
    for (int i = 0; i < calls; ++i) {
      One one;
      // Mostly as the call before, so that there are several to be joined.
      if (i == 0 || below(5) == 0) {
        one.call = {.collective = kinds[below(4)],
                    .type = types[below(types.size())],
                    .reduction = operators[below(operators.size())],
                    .root = static_cast<int>(below(static_cast<std::size_t>(ranks)))};
      } else {
        one.call = calls_.back().call;
      }
      one.call.count = counts[below(counts.size())];
      one.inPlace = below(2) == 0;
      one.hasFactors = below(4) == 0 && one.call.type == DataType::FLOAT32;
      const std::size_t size = sizeOf(one.call.type);
      one.inputCount =
          one.call.count * (one.call.collective == CollectiveType::ReduceScatter ? static_cast<std::size_t>(ranks) : 1);
      one.input = take((one.inputCount + 3) * size);
      one.output = take((one.call.count + 3) * size);
      one.inputs = inputBytes(one.call.type, one.inputCount, ranks, seed * 100 + static_cast<unsigned>(i));
      calls_.push_back(std::move(one));
    }
  }

  /// A rank's memory before the calls: inputs, and poison.
  Bytes memory(int rank) const {
    Bytes bytes(bytes_, poisonByte);
    for (const One& one : calls_) {
      const Bytes& input = one.inputs[static_cast<std::size_t>(rank)];
      std::copy(input.begin(), input.end(), bytes.begin() + static_cast<std::ptrdiff_t>(inputOf(one, rank)));
    }
    return bytes;
  }

  std::vector<CollectiveCall> calls(int rank, void* memory, CUstream_st* stream = nullptr) const {
    std::vector<CollectiveCall> calls;
    auto* const begin = static_cast<unsigned char*>(memory);
    for (const One& one : calls_) {
      CollectiveCall& call = calls.emplace_back(one.call);
      call.input = begin + inputOf(one, rank);
      call.output = begin + outputOf(one, rank);
      call.stream = stream;
      if (const float* factor = factorOf(one, rank)) call.reduction.factor = factor;
    }
    return calls;
  }

  /// What is wrong with a rank's memory after the calls; empty if nothing.
  std::string differenceOf(int rank, const Bytes& after) const {
    Bytes wanted = memory(rank);
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const One& one = calls_[i];
      if (one.call.collective == CollectiveType::Reduce && one.call.root != rank) continue;
      const std::size_t bytes = one.call.count * sizeOf(one.call.type);
      const std::size_t part =
          one.call.collective == CollectiveType::ReduceScatter ? static_cast<std::size_t>(rank) * bytes : 0;
      std::vector<Bytes> inputs;
      for (int from = 0; from < ranks_; ++from) {
        const auto begin = one.inputs[static_cast<std::size_t>(from)].begin() + static_cast<std::ptrdiff_t>(part);
        inputs.push_back(scaled(Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes)), factorOf(one, from)));
      }
      const auto at = static_cast<std::ptrdiff_t>(outputOf(one, rank));
      const Bytes output(after.begin() + at, after.begin() + at + static_cast<std::ptrdiff_t>(bytes));
      const std::string difference = describeDifference(one.call.type, one.call.reduction.op, inputs, output);
      if (!difference.empty()) {
        return "call " + std::to_string(i) + ", " + nameOf(one.call.collective) + " of " +
               std::to_string(one.call.count) + " " + nameOf(one.call.type) + ", " + nameOf(one.call.reduction.op) +
               (one.inPlace ? ", in place: " : ": ") + difference;
      }
      std::copy(output.begin(), output.end(), wanted.begin() + at);
    }
    const auto at = std::mismatch(wanted.begin(), wanted.end(), after.begin()).first - wanted.begin();
    return at == static_cast<std::ptrdiff_t>(bytes_) ? "" : "byte " + std::to_string(at) + " was overwritten";
  }

 private:
  struct One {
    CollectiveCall call;
    bool inPlace = false;
    bool hasFactors = false;
    std::size_t inputCount = 0;
    std::size_t input = 0;   ///< where there is room for it
    std::size_t output = 0;  ///< likewise
    std::vector<Bytes> inputs;
  };

  std::size_t take(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += (bytes + 2 * 64 - 1) / 64 * 64;
    return at;
  }
  static std::size_t shiftOf(const One& one, int rank, std::size_t array) {
    return (static_cast<std::size_t>(rank) + one.input / 64 + array) % 3 * sizeOf(one.call.type);
  }
  std::size_t inputOf(const One& one, int rank) const { return one.input + shiftOf(one, rank, 0); }
  std::size_t outputOf(const One& one, int rank) const {
    if (!one.inPlace) return one.output + shiftOf(one, rank, 1);
    const bool isPart = one.call.collective == CollectiveType::ReduceScatter;
    return inputOf(one, rank) + (isPart ? static_cast<std::size_t>(rank) * one.call.count * sizeOf(one.call.type) : 0);
  }
  /// Ranks have different factors, and one of them none.
  static const float* factorOf(const One& one, int rank) {
    static constexpr float factors[] = {0.5f, 3.0f, 0.25f};
    return one.hasFactors && rank % 4 != 1 ? &factors[rank % 3] : nullptr;
  }
  static Bytes scaled(const Bytes& bytes, const float* factor) {
    if (factor == nullptr) return bytes;
    auto elements = elementsOf<float>(bytes);
    for (float& element : elements) element *= *factor;
    return bytesOf(elements);
  }

  int ranks_;
  std::vector<One> calls_;
  std::size_t bytes_ = 64;
};

}  // namespace mscclpp::test
