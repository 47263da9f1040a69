// Calls of every compiled collective with random data, and the check of all that a rank gets.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "element_types.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::test {

inline constexpr std::array everyCollective = {
    CollectiveType::AllReduce, CollectiveType::AllGather, CollectiveType::ReduceScatter,
    CollectiveType::AllToAll,  CollectiveType::Broadcast, CollectiveType::Reduce,
    CollectiveType::Gather,    CollectiveType::Scatter,   CollectiveType::SendReceive};

/// An all-reduce, as Collectives::supports() and the like take it.
inline CollectiveCall allReduceOf(std::size_t count, DataType type, ReduceOp op, const std::string& algorithm = {}) {
  return {.count = count, .type = type, .reduction = op, .algorithm = algorithm};
}

/// The algorithms that support a call, and the empty name, which selects one by size. Those that need a registered
/// output, if the call's output is in registered memory.
inline std::vector<std::string> algorithmsFor(const Collectives& collectives, CollectiveCall call) {
  std::vector<std::string> names{""};
  for (const auto& name : collectives.algorithms(call.collective)) {
    call.algorithm = name;
    if (collectives.supports(call)) names.push_back(name);
  }
  return names;
}

/// A call to be checked. Its pointers are not used.
struct CheckedCall {
  CollectiveCall call;
  Output where = Output::OtherBuffer;
  std::size_t shift = 0;  ///< elements off alignment
  unsigned seed = 0;
  int hops = 1;     ///< SendReceive: rank r sends to rank r + hops
  int sender = -1;  ///< SendReceive: the only rank that sends; -1: all do
};

inline std::string describe(const CheckedCall& checked) {
  const CollectiveCall& call = checked.call;
  std::string text = std::string(nameOf(call.collective)) + " \"" + call.algorithm + "\", " +
                     std::to_string(call.count) + " " + nameOf(call.type);
  if (hasRoot(call.collective)) text += ", root " + std::to_string(call.root);
  if (hasReduction(call.collective)) text += std::string(", ") + nameOf(call.reduction.op);
  if (call.collective == CollectiveType::SendReceive) {
    text += ", " + std::to_string(checked.hops) + " hops, sender " + std::to_string(checked.sender);
  }
  return text + ", shift " + std::to_string(checked.shift) + (checked.where == Output::InPlace ? ", in place" : "");
}

namespace parts {

/// What a rank has in a call.
struct Role {
  CollectiveCall call;  ///< with the ranks of a SendReceive
  bool hasInput;
  bool hasOutput;
  bool isInPlace;
  std::size_t inputCount;   ///< elements of the input
  std::size_t outputCount;  ///< of the output
  std::size_t inputPlace;   ///< in place: the elements before the input
  std::size_t outputPlace;  ///< before the output
};

inline bool hasAllParts(CollectiveType collective) {
  return collective == CollectiveType::ReduceScatter || collective == CollectiveType::AllToAll ||
         collective == CollectiveType::Scatter;
}

inline Bytes part(const Bytes& bytes, std::size_t index, std::size_t size) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(index * size);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(size));
}

/// What is wrong with the output of a rank; empty if nothing.
inline std::string differenceOf(const CollectiveCall& call, int rank, const std::vector<Bytes>& inputs,
                                const Bytes& output) {
  const std::size_t bytes = call.count * sizeOf(call.type);
  const auto self = static_cast<std::size_t>(rank);
  const auto root = static_cast<std::size_t>(call.root);
  std::vector<Bytes> reduced = inputs;
  Bytes wanted;
  const auto append = [&](const Bytes& more) { wanted.insert(wanted.end(), more.begin(), more.end()); };
  switch (call.collective) {
    case CollectiveType::AllReduce:
    case CollectiveType::Reduce:
      return describeDifference(call.type, call.reduction.op, reduced, output);
    case CollectiveType::ReduceScatter:
      for (Bytes& input : reduced) input = part(input, self, bytes);
      return describeDifference(call.type, call.reduction.op, reduced, output);
    case CollectiveType::AllGather:
    case CollectiveType::Gather:
      for (const Bytes& input : inputs) append(input);
      break;
    case CollectiveType::AllToAll:
      for (const Bytes& input : inputs) append(part(input, self, bytes));
      break;
    case CollectiveType::Broadcast:
      append(inputs[root]);
      break;
    case CollectiveType::Scatter:
      append(part(inputs[root], self, bytes));
      break;
    case CollectiveType::ReduceScatterV:
      return "not a collective of this test";
    case CollectiveType::SendReceive:
      append(inputs[static_cast<std::size_t>(call.origin)]);
      break;
  }
  if (wanted.size() != output.size()) return "wrong length";
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != output[i])
      return "byte " + std::to_string(i) + " of " + std::to_string(wanted.size()) + " differs";
  }
  return {};
}

}  // namespace parts

/// The role of a rank in a call. Where a rank has no input, inputCount is what it would be.
inline parts::Role roleOf(const CheckedCall& checked, int rank, int ranks) {
  const CollectiveType collective = checked.call.collective;
  const auto size = static_cast<std::size_t>(ranks);
  const bool isRoot = rank == checked.call.root;
  parts::Role role{
      .call = checked.call,
      .hasInput = isRoot || (collective != CollectiveType::Broadcast && collective != CollectiveType::Scatter),
      .hasOutput = isRoot || (collective != CollectiveType::Reduce && collective != CollectiveType::Gather),
      .isInPlace = false,
      .inputCount = 0,
      .outputCount = 0,
      .inputPlace = 0,
      .outputPlace = 0};
  CollectiveCall& call = role.call;
  if (collective == CollectiveType::SendReceive) {
    call.destination = (rank + checked.hops) % ranks;
    call.origin = (rank + checked.hops * (ranks - 1)) % ranks;
    call.receivedCount = call.count;
    if (checked.sender >= 0 && checked.sender != rank) call.destination = -1;
    if (checked.sender >= 0 && checked.sender != call.origin) call.origin = -1;
    role.hasInput = call.destination >= 0;
    role.hasOutput = call.origin >= 0;
  }
  const bool isGather = collective == CollectiveType::AllGather || collective == CollectiveType::Gather;
  const bool isPart = collective == CollectiveType::ReduceScatter || collective == CollectiveType::Scatter;
  const bool hasPlace = collective != CollectiveType::AllToAll && collective != CollectiveType::SendReceive;
  const std::size_t place = static_cast<std::size_t>(rank) * call.count;
  role.isInPlace = checked.where == Output::InPlace && hasPlace && role.hasInput && role.hasOutput;
  role.inputCount = call.count * (parts::hasAllParts(collective) ? size : 1);
  role.outputCount = call.count * (isGather || collective == CollectiveType::AllToAll ? size : 1);
  if (role.isInPlace && isGather) role.inputPlace = place;
  if (role.isInPlace && isPart) role.outputPlace = place;
  return role;
}

/// Performs a call on this rank; the pointers of the call are offsets in these buffers, which are the same one if `to`
/// is null. Leaves in the buffers what they hold afterwards.
using Perform = std::function<void(CollectiveCall call, Bytes& from, Bytes* to)>;

/// Performs a call on this rank and returns what is wrong with its output and the bytes around it, or with the input,
/// which must be unchanged; empty if nothing. All ranks call it alike.
inline std::string performAndCompare(const CheckedCall& checked, int rank, int ranks, const Perform& perform) {
  const parts::Role role = roleOf(checked, rank, ranks);
  CollectiveCall call = role.call;
  const std::size_t element = sizeOf(call.type);
  const auto inputs = inputBytes(call.type, role.inputCount, ranks, checked.seed);
  const Bytes& input = inputs[static_cast<std::size_t>(rank)];
  const std::size_t outputBytes = role.outputCount * element;
  // Where input and output begin in the buffers: in place, one is a part of the other.
  const std::size_t start = 128 + checked.shift * element;
  const std::size_t inputAt = start + role.inputPlace * element;
  const std::size_t outputAt = start + role.outputPlace * element;
  Bytes from(start + std::max(input.size(), role.isInPlace ? outputBytes : 0) + 128, poisonByte);
  Bytes other(start + outputBytes + 128, poisonByte);
  if (role.hasInput) std::copy(input.begin(), input.end(), from.begin() + static_cast<std::ptrdiff_t>(inputAt));
  const Bytes before = from;
  call.input = role.hasInput ? reinterpret_cast<const void*>(inputAt) : nullptr;
  call.output = role.hasOutput ? reinterpret_cast<void*>(outputAt) : nullptr;
  perform(call, from, role.isInPlace ? nullptr : &other);
  const Bytes& to = role.isInPlace ? from : other;
  const Bytes untouched = role.isInPlace ? before : Bytes(to.size(), poisonByte);
  const auto begin = static_cast<std::ptrdiff_t>(outputAt);
  const auto end = begin + static_cast<std::ptrdiff_t>(role.hasOutput ? outputBytes : 0);
  if (role.hasOutput) {
    const Bytes output(to.begin() + begin, to.begin() + end);
    const std::string difference = parts::differenceOf(call, rank, inputs, output);
    if (!difference.empty()) return difference;
  }
  if (!role.isInPlace && from != before) return "the input was modified";
  if (!std::equal(to.begin(), to.begin() + begin, untouched.begin())) return "bytes before the output were modified";
  if (!std::equal(to.begin() + end, to.end(), untouched.begin() + end)) return "bytes after the output were modified";
  return {};
}

/// The same as a check.
inline void checkCollective(const CheckedCall& checked, int rank, int ranks, const Perform& perform) {
  const std::string problem = performAndCompare(checked, rank, ranks, perform);
  CHECK(problem == "");
}

/// Calls every collective with these counts and types and every algorithm; returns the number of calls.
/// registeredOutput: if perform() uses registered buffers, the beginning of the one for outputs.
inline unsigned checkEveryCollective(const Collectives& collectives, int rank, int ranks,
                                     const std::vector<std::size_t>& counts, const std::vector<DataType>& types,
                                     const Perform& perform, void* registeredOutput = nullptr) {
  unsigned calls = 0;
  for (const CollectiveType collective : everyCollective) {
    for (const std::size_t count : counts) {
      for (const DataType type : types) {
        CheckedCall checked;
        checked.call = {.collective = collective,
                        .output = registeredOutput,
                        .count = count,
                        .type = type,
                        .destination = 0,
                        .origin = 0,
                        .receivedCount = count};
        for (const auto& algorithm : algorithmsFor(collectives, checked.call)) {
          ++calls;
          checked.call.algorithm = algorithm;
          checked.call.root = static_cast<int>(calls) % ranks;
          checked.call.reduction = operators[calls % operators.size()];
          checked.where = calls % 2 == 0 ? Output::InPlace : Output::OtherBuffer;
          // In place, only the root of a broadcast or scatter would have its output among the inputs.
          if (registeredOutput != nullptr && hasRoot(collective)) checked.where = Output::OtherBuffer;
          checked.shift = calls / 2 % 3;
          checked.hops = static_cast<int>(calls) % ranks;
          checked.seed = calls;
          INFO(describe(checked));
          checkCollective(checked, rank, ranks, perform);
        }
      }
    }
  }
  return calls;
}

}  // namespace mscclpp::test
