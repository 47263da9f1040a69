// Calls of every algorithm of a collection with random data, and the check of all that a rank gets.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "every_collective.hpp"
#include "mscclpp/kernels/algorithm_collection.hpp"

namespace mscclpp::test {

inline CollectiveType typeOf(const std::string& collective) {
  static const std::map<std::string, CollectiveType> types{{"allreduce", CollectiveType::AllReduce},
                                                           {"allgather", CollectiveType::AllGather},
                                                           {"reducescatter", CollectiveType::ReduceScatter},
                                                           {"alltoall", CollectiveType::AllToAll},
                                                           {"broadcast", CollectiveType::Broadcast},
                                                           {"reduce", CollectiveType::Reduce},
                                                           {"gather", CollectiveType::Gather},
                                                           {"scatter", CollectiveType::Scatter},
                                                           {"sendrecv", CollectiveType::SendReceive}};
  return types.at(collective);
}

inline std::vector<std::shared_ptr<Algorithm>> sortedAlgorithms(const AlgorithmCollection& collection) {
  auto all = collection.getAllAlgorithms();
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->name() < b->name(); });
  return all;
}

inline bool needsSymmetricMemory(const Algorithm& algorithm) {
  return algorithm.tags().count("symmetricMemory") != 0;
}

/// Executes what a call of `Collectives` does.
inline CommResult executeCall(Algorithm& algorithm, const std::shared_ptr<Communicator>& communicator, int ranks,
                              const CollectiveCall& call, bool symmetricMemory = false) {
  const std::size_t bytes = call.count * sizeOf(call.type);
  const std::size_t all = bytes * static_cast<std::size_t>(ranks);
  const auto type = call.collective;
  const bool isGather = type == CollectiveType::AllGather || type == CollectiveType::Gather;
  std::size_t inputSize = parts::hasAllParts(type) ? all : bytes;
  std::size_t outputSize = isGather || type == CollectiveType::AllToAll ? all : bytes;
  // A rank without a buffer passes a size of 0 or the full size.
  if (call.input == nullptr && call.root % 2 == 0) inputSize = 0;
  if (call.output == nullptr && call.root % 2 == 0) outputSize = 0;
  std::unordered_map<std::string, std::uintptr_t> extras;
  if (hasRoot(type)) extras["root"] = static_cast<std::uintptr_t>(call.root);
  if (type == CollectiveType::SendReceive) {
    extras["destination"] = static_cast<std::uintptr_t>(call.destination);
    extras["origin"] = static_cast<std::uintptr_t>(call.origin);
  }
  return algorithm.execute(communicator, call.input, call.output, inputSize, outputSize, call.type, call.reduction.op,
                           call.stream, nullptr, 0, 0, symmetricMemory, extras);
}

/// Calls an algorithm with each count and some types, in the same order on all ranks. `calls` counts the calls, and
/// varies them.
inline void checkAlgorithm(const Algorithm& algorithm, int rank, int ranks, const std::vector<std::size_t>& counts,
                           const Perform& perform, unsigned& calls, bool symmetricMemory = false) {
  const CollectiveType type = typeOf(algorithm.collective());
  // Some algorithms that reduce are not compiled for rare types.
  const bool isForAllTypes = !hasReduction(type) || algorithm.name() == "mscclpp_" + algorithm.collective() ||
                             algorithm.name().starts_with("default_");
  for (const std::size_t count : counts) {
    for (const DataType element : {DataType::FLOAT32, DataType::BFLOAT16, DataType::INT32}) {
      if (element == DataType::INT32 && !isForAllTypes) continue;
      if (count * sizeOf(element) > algorithm.messageRange().second) continue;
      ++calls;
      CheckedCall checked;
      checked.call = {.collective = type,
                      .count = count,
                      .type = element,
                      .reduction = operators[calls % operators.size()],
                      .root = static_cast<int>(calls) % ranks};
      // In place, only the root of a broadcast would have its output in the memory of its input.
      const bool isInPlace = calls % 2 == 0 && !(symmetricMemory && hasRoot(type));
      checked.where = isInPlace ? Output::InPlace : Output::OtherBuffer;
      checked.shift = calls / 2 % 3;
      checked.hops = static_cast<int>(calls) % ranks;
      checked.seed = calls;
      INFO(algorithm.name() << ", " << count << " " << nameOf(element) << ", root " << checked.call.root);
      checkCollective(checked, rank, ranks, perform);
    }
  }
}

/// Calls every algorithm of a collection that takes any memory. performerOf(algorithm) returns what
/// checkCollective() takes. Returns the names of the collectives.
inline std::set<std::string> checkEveryAlgorithm(const AlgorithmCollection& collection, int rank, int ranks,
                                                 const std::vector<std::size_t>& counts,
                                                 const std::function<Perform(Algorithm&)>& performerOf) {
  std::set<std::string> collectives;
  unsigned calls = 0;
  for (const auto& algorithm : sortedAlgorithms(collection)) {
    if (needsSymmetricMemory(*algorithm)) continue;
    collectives.insert(algorithm->collective());
    checkAlgorithm(*algorithm, rank, ranks, counts, performerOf(*algorithm), calls);
  }
  return collectives;
}

}  // namespace mscclpp::test
