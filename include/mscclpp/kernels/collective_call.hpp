// A call of a compiled collective as a run-time value.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "mscclpp/basic/data_type.hpp"

struct CUstream_st;

namespace mscclpp {

/// The compiled collectives.
enum class CollectiveType {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  SendReceive,
  ReduceScatterV
};
inline constexpr int collectiveTypes = 10;

/// The name of a collective in command lines and messages: "all_reduce".
constexpr const char* nameOf(CollectiveType collective) {
  switch (collective) {
    case CollectiveType::AllReduce:
      return "all_reduce";
    case CollectiveType::AllGather:
      return "all_gather";
    case CollectiveType::ReduceScatter:
      return "reduce_scatter";
    case CollectiveType::AllToAll:
      return "all_to_all";
    case CollectiveType::Broadcast:
      return "broadcast";
    case CollectiveType::Reduce:
      return "reduce";
    case CollectiveType::Gather:
      return "gather";
    case CollectiveType::Scatter:
      return "scatter";
    case CollectiveType::SendReceive:
      return "send_receive";
    case CollectiveType::ReduceScatterV:
      return "reduce_scatter_v";
  }
  return "unknown";
}

/// Whether a collective has a reduction operator.
constexpr bool hasReduction(CollectiveType collective) {
  return collective == CollectiveType::AllReduce || collective == CollectiveType::ReduceScatter ||
         collective == CollectiveType::Reduce || collective == CollectiveType::ReduceScatterV;
}
/// Whether a collective has a root.
constexpr bool hasRoot(CollectiveType collective) {
  return collective == CollectiveType::Broadcast || collective == CollectiveType::Reduce ||
         collective == CollectiveType::Gather || collective == CollectiveType::Scatter;
}

/// Whether a collective has a count for each rank.
constexpr bool hasVariableCounts(CollectiveType collective) {
  return collective == CollectiveType::ReduceScatterV;
}

/// Where a scalar is read.
enum class ScalarLocation {
  Host,   ///< by the call, before it returns
  Device  ///< by the kernel: it may be written by work that is before the call in the stream
};

/// A reduction: an operator, and optionally a factor for this rank's contribution (NCCL's pre-multiplied sum, with any
/// operator). Ranks may have different factors.
struct Reduction {
  ReduceOp op = ReduceOp::SUM;
  /// One element of the call's type, aligned as one; null: no factor. The product is rounded to the type before it is
  /// sent.
  const void* factor = nullptr;
  ScalarLocation factorLocation = ScalarLocation::Host;

  constexpr Reduction() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an operator is a reduction
  constexpr Reduction(ReduceOp reduceOp) : op(reduceOp) {}
  constexpr Reduction(ReduceOp reduceOp, const void* scalar, ScalarLocation location)
      : op(reduceOp), factor(scalar), factorLocation(location) {}
};

/// A message that a rank sends in an exchange.
struct SentMessage {
  const void* data;
  std::size_t bytes;
  int destination;
};
/// A message that a rank receives in an exchange.
struct ReceivedMessage {
  void* data;
  std::size_t bytes;  ///< those of the sender
  int origin;
};
/// The most messages that a rank sends, and that it receives, in one exchange.
inline constexpr std::size_t maxSentMessages = 64;
inline constexpr std::size_t maxReceivedMessages = 64;

/// What a call does. All ranks pass the same collective, count, type, operator, root and algorithm, but for a
/// SendReceive.
struct CollectiveCall {
  CollectiveType collective = CollectiveType::AllReduce;
  const void* input = nullptr;  ///< may be null where the rank has none: not the root of a broadcast or scatter
  void* output = nullptr;       ///< may be null where the rank has none: not the root of a reduce or gather
  /// Elements: of the message (AllReduce, Broadcast, Reduce, SendReceive), of a rank's contribution (AllGather,
  /// Gather), of a rank's result (ReduceScatter, Scatter), or of the part from one rank for another (AllToAll).
  /// Not used by ReduceScatterV.
  std::size_t count = 0;
  DataType type = DataType::FLOAT32;
  Reduction reduction = {};
  int root = 0;
  int destination = -1;           ///< SendReceive: the rank that gets the input, or -1
  int origin = -1;                ///< SendReceive: the rank whose message the output gets, or -1
  std::size_t receivedCount = 0;  ///< SendReceive: its elements
  /// ReduceScatterV: [r]: the elements of rank r's result, the same on all ranks, and where they begin in the input of
  /// this rank. Read before the call returns.
  std::span<const std::size_t> counts = {};
  std::span<const std::size_t> offsets = {};
  CUstream_st* stream = nullptr;  ///< to enqueue on, on GPUs
  std::string algorithm = {};     ///< one of Collectives::algorithms(), or empty to select it by size
  /// The ranks' outputs are not known to be at the same offset in a registered buffer: the call takes no algorithm that
  /// needs registration, whatever is registered. The same on all ranks.
  bool ignoresRegistration = false;
};

}  // namespace mscclpp
