// A plan as a value: usable in constant expressions (while one is being evaluated) and at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/plan/operation.hpp"

namespace mscclpp::plan {

/// What a plan is, beside its operations.
struct Header {
  CollectiveKind collective = CollectiveKind::AllReduce;
  std::int32_t ranks = 0;
  std::int32_t root = 0;  ///< Broadcast, Reduce, Gather, Scatter
  /// Into how many chunks a part of a buffer is divided (see CollectiveKind). A chunk is the part's bytes divided by
  /// chunksPerPart, rounded up to `alignment`; the last ones of a part may be shorter, or empty. A scratch chunk has
  /// room for a whole one.
  std::int32_t chunksPerPart = 1;
  bool inPlace = false;  ///< input and output are one buffer, as NCCL defines it for the collective
  std::int32_t threadsPerBlock = 1024;
  std::int32_t alignment = 16;  ///< of chunks, bytes
  std::uint64_t minBytes = 0;   ///< the sizes of messages (as NCCL's tables state sizes) for which the plan is meant
  std::uint64_t maxBytes = ~std::uint64_t{0};
  /// Successive calls use two halves of the scratch in turn.
  bool doubleScratch = false;
  /// Channels and scratch are shared by all calls, whatever their buffers: messages are copied through scratch.
  bool reuseResources = false;
};

/// A lowered plan for all ranks. Flat: operations, operands and so on lie in one array each, and entries refer to
/// others by Range.
struct Plan : Header {
  std::vector<RankPlan> rankPlans;  ///< one for each rank
  std::vector<Block> blocks;
  std::vector<Operation> operations;
  std::vector<Operand> operands;
  std::vector<Channel> channels;
  std::vector<std::int32_t> references;
  std::vector<Expectation> expectations;  ///< CollectiveKind::Custom
};

/// A plan at run time, with what only people read.
struct NamedPlan : Plan {
  std::string name;
  std::vector<std::string> origins;  ///< Operation::origin: "file:line" of the program that the plan was made by
};

/// The size of one of the lists of a plan, as ranges count.
template <class List>
constexpr std::int32_t countOf(const List& list) {
  return static_cast<std::int32_t>(list.size());
}

/// The number of chunks that the collective's input (output) has on a rank; Custom: the plan says.
constexpr std::int32_t inputChunksOf(const Header& header, std::int32_t rank) {
  switch (header.collective) {
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
      return header.ranks * header.chunksPerPart;
    case CollectiveKind::Scatter:
      return rank == header.root ? header.ranks * header.chunksPerPart : 0;
    case CollectiveKind::Broadcast:
      return rank == header.root ? header.chunksPerPart : 0;
    default:
      return header.chunksPerPart;
  }
}
constexpr std::int32_t outputChunksOf(const Header& header, std::int32_t rank) {
  switch (header.collective) {
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll:
      return header.ranks * header.chunksPerPart;
    case CollectiveKind::Gather:
      return rank == header.root ? header.ranks * header.chunksPerPart : 0;
    case CollectiveKind::Reduce:
      return rank == header.root ? header.chunksPerPart : 0;
    default:
      return header.chunksPerPart;
  }
}

/// The position in the message of the data of an input or output chunk: see Operation::position.
constexpr std::int32_t chunkPosition(const Header& header, std::int32_t chunk) {
  return chunk % header.chunksPerPart;
}

}  // namespace mscclpp::plan
