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

/// A call to be checked. Its pointers are not used. A SendReceive is a ring, `hops` ranks on.
struct CheckedCall {
  CollectiveCall call;
  Output where = Output::OtherBuffer;
  std::size_t shift = 0;  ///< elements off alignment
  unsigned seed = 0;
  int hops = 1;
};

namespace parts {

inline bool hasAllParts(CollectiveType collective) {
  return collective == CollectiveType::ReduceScatter || collective == CollectiveType::AllToAll ||
         collective == CollectiveType::Scatter;
}

inline Bytes part(const Bytes& bytes, std::size_t index, std::size_t size) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(index * size);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(size));
}

/// What is wrong with the output of a rank; empty if nothing.
inline std::string differenceOf(const CollectiveCall& call, int rank, int ranks, const std::vector<Bytes>& inputs,
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
    case CollectiveType::SendReceive:
      append(inputs[static_cast<std::size_t>(call.origin)]);
      break;
  }
  (void)ranks;
  if (wanted.size() != output.size()) return "wrong length";
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != output[i])
      return "byte " + std::to_string(i) + " of " + std::to_string(wanted.size()) + " differs";
  }
  return {};
}

}  // namespace parts

/// Performs a call on this rank and checks every byte of its output and around it, and that the input is unchanged. All
/// ranks call it alike. perform(call, from, to) runs a call whose pointers are offsets in these buffers, which are the
/// same one if `to` is null, and leaves what the buffers hold afterwards in them.
inline void checkCollective(const CheckedCall& checked, int rank, int ranks,
                            const std::function<void(CollectiveCall call, Bytes& from, Bytes* to)>& perform) {
  using namespace parts;
  CollectiveCall call = checked.call;
  const CollectiveType collective = call.collective;
  const std::size_t element = sizeOf(call.type);
  const auto size = static_cast<std::size_t>(ranks);
  const auto self = static_cast<std::size_t>(rank);
  if (collective == CollectiveType::SendReceive) {
    call.destination = (rank + checked.hops) % ranks;
    call.origin = (rank + checked.hops * (ranks - 1)) % ranks;
    call.receivedCount = call.count;
  }
  const auto inputs = inputBytes(call.type, call.count * (hasAllParts(collective) ? size : 1), ranks, checked.seed);
  const bool isRoot = rank == call.root;
  const bool hasInput = isRoot || (collective != CollectiveType::Broadcast && collective != CollectiveType::Scatter);
  const bool hasOutput = isRoot || (collective != CollectiveType::Reduce && collective != CollectiveType::Gather);
  const bool isGather = collective == CollectiveType::AllGather || collective == CollectiveType::Gather;
  const bool hasPlace = collective != CollectiveType::AllToAll && collective != CollectiveType::SendReceive;
  const bool isInPlace = checked.where == Output::InPlace && hasPlace && hasInput && hasOutput;
  const std::size_t bytes = call.count * element;
  const std::size_t outputBytes = isGather || collective == CollectiveType::AllToAll ? bytes * size : bytes;
  // Where input and output begin in the buffers: in place, one is a part of the other.
  const std::size_t start = 128 + checked.shift * element;
  const std::size_t inputAt = start + (isInPlace && isGather ? self * bytes : 0);
  const bool isPart = collective == CollectiveType::ReduceScatter || collective == CollectiveType::Scatter;
  const std::size_t outputAt = start + (isInPlace && isPart ? self * bytes : 0);
  const Bytes& input = inputs[self];
  Bytes from(start + std::max(input.size(), isInPlace ? outputBytes : 0) + 128, poisonByte);
  Bytes other(start + outputBytes + 128, poisonByte);
  if (hasInput) std::copy(input.begin(), input.end(), from.begin() + static_cast<std::ptrdiff_t>(inputAt));
  const Bytes before = from;
  call.input = hasInput ? reinterpret_cast<const void*>(inputAt) : nullptr;
  call.output = hasOutput ? reinterpret_cast<void*>(outputAt) : nullptr;
  perform(call, from, isInPlace ? nullptr : &other);
  Bytes& to = isInPlace ? from : other;
  const auto outputBegin = to.begin() + static_cast<std::ptrdiff_t>(outputAt);
  const auto outputEnd = outputBegin + static_cast<std::ptrdiff_t>(outputBytes);
  if (hasOutput) {
    const std::string difference = differenceOf(call, rank, ranks, inputs, Bytes(outputBegin, outputEnd));
    CHECK(difference == "");
  }
  if (!isInPlace) {
    CHECK(from == before);
    CHECK(std::count(to.begin(), outputBegin, poisonByte) == outputBegin - to.begin());
    if (!hasOutput) CHECK(std::count(outputBegin, outputEnd, poisonByte) == outputEnd - outputBegin);
  } else {
    CHECK(std::equal(from.begin(), outputBegin, before.begin()));
  }
  const auto after = static_cast<std::size_t>(outputEnd - to.begin());
  CHECK(std::equal(outputEnd, to.end(),
                   (isInPlace ? before : Bytes(to.size(), poisonByte)).begin() + static_cast<std::ptrdiff_t>(after)));
}

/// Calls every collective with these counts and types and every algorithm; returns the number of calls.
/// registeredOutput: if perform() uses registered buffers, the beginning of the one for outputs.
inline unsigned checkEveryCollective(const Collectives& collectives, int rank, int ranks,
                                     const std::vector<std::size_t>& counts, const std::vector<DataType>& types,
                                     const std::function<void(CollectiveCall, Bytes&, Bytes*)>& perform,
                                     void* registeredOutput = nullptr) {
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
          INFO(nameOf(collective) << " " << algorithm << ", " << count << " " << nameOf(type) << ", root "
                                  << checked.call.root << ", " << nameOf(checked.call.reduction.op) << ", shift "
                                  << checked.shift << ", hops " << checked.hops);
          checkCollective(checked, rank, ranks, perform);
        }
      }
    }
  }
  return calls;
}

}  // namespace mscclpp::test
