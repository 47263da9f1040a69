// What nccl-tests calls the size of a collective, and what follows from it: counts, buffers and bus bandwidth.
#pragma once

#include <algorithm>
#include <cstddef>

#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::perf {

/// Whether the size is that of all ranks' parts together; otherwise it is that of the message.
constexpr bool isSizeOfAllParts(CollectiveType collective) {
  switch (collective) {
    case CollectiveType::AllGather:
    case CollectiveType::ReduceScatter:
    case CollectiveType::AllToAll:
    case CollectiveType::Gather:
    case CollectiveType::Scatter:
      return true;
    default:
      return false;
  }
}

/// Whether NCCL, and so this library, defines an in-place form.
constexpr bool hasInPlaceForm(CollectiveType collective) {
  return collective != CollectiveType::AllToAll && collective != CollectiveType::SendReceive;
}

/// Bus bandwidth divided by algorithm bandwidth (size / time): the share of the size that passes the busiest link.
constexpr double busFactor(CollectiveType collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == CollectiveType::AllReduce) return 2 * others;
  return isSizeOfAllParts(collective) ? others : 1;
}

/// A call's counts, in elements.
struct CollectiveShape {
  CollectiveType collective;
  int ranks;
  std::size_t count;  ///< CollectiveCall::count

  constexpr std::size_t allParts() const { return count * static_cast<std::size_t>(ranks); }
  /// Of the message, or of all ranks' parts together.
  constexpr std::size_t size() const { return isSizeOfAllParts(collective) ? allParts() : count; }
  /// Of each rank, whether or not it is the root.
  constexpr std::size_t input() const {
    return collective == CollectiveType::ReduceScatter || collective == CollectiveType::AllToAll ||
                   collective == CollectiveType::Scatter
               ? allParts()
               : count;
  }
  /// Of the root; of every rank where there is no root.
  constexpr std::size_t output() const {
    return collective == CollectiveType::AllGather || collective == CollectiveType::AllToAll ||
                   collective == CollectiveType::Gather
               ? allParts()
               : count;
  }
  /// Of a rank: 0 where only the root has an output.
  constexpr std::size_t output(int rank, int root) const {
    const bool onlyAtRoot = collective == CollectiveType::Reduce || collective == CollectiveType::Gather;
    return onlyAtRoot && rank != root ? 0 : output();
  }
};

/// The shape for a size in bytes: a message or part is rounded down to whole elements, of which it has one at least.
constexpr CollectiveShape shapeOf(CollectiveType collective, int ranks, std::size_t bytes, std::size_t elementBytes) {
  const std::size_t elements = bytes / elementBytes;
  const std::size_t count = isSizeOfAllParts(collective) ? elements / static_cast<std::size_t>(ranks) : elements;
  return {collective, ranks, std::max<std::size_t>(count, 1)};
}

}  // namespace mscclpp::perf
