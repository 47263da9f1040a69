#include "call_arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::kernels {

namespace {

/// A buffer of a call: null where the rank has none.
struct Buffer {
  const char* name;
  const void* data;
  std::size_t elements;
};

bool isKnown(ReduceOp op) {
  return visit(
      op, [](auto) { return true; }, [] { return false; });
}

void requireRank(const CollectiveCall& call, const char* name, int value, int least, int ranks) {
  if (value >= least && value < ranks) return;
  throwInvalidCall(call, std::string(name) + " is " + std::to_string(value) + ", but the ranks are 0 to " +
                             std::to_string(ranks - 1) + (least < 0 ? ", or -1 for none" : ""));
}

/// The elements of the rank's input and output; 0 where it has none.
void sizesOf(const CollectiveCall& call, int rank, int ranks, std::size_t& input, std::size_t& output) {
  const auto all = static_cast<std::size_t>(ranks) * call.count;
  const bool isRoot = rank == call.root;
  input = output = call.count;
  switch (call.collective) {
    case CollectiveType::AllReduce:
      break;
    case CollectiveType::AllGather:
      output = all;
      break;
    case CollectiveType::ReduceScatter:
      input = all;
      break;
    case CollectiveType::AllToAll:
      input = output = all;
      break;
    case CollectiveType::Broadcast:
      if (!isRoot) input = 0;
      break;
    case CollectiveType::Reduce:
      if (!isRoot) output = 0;
      break;
    case CollectiveType::Gather:
      output = isRoot ? all : 0;
      break;
    case CollectiveType::Scatter:
      input = isRoot ? all : 0;
      break;
    case CollectiveType::SendReceive:
      input = call.destination < 0 ? 0 : call.count;
      output = call.origin < 0 ? 0 : call.receivedCount;
      break;
    case CollectiveType::ReduceScatterV:
      input = 0;
      for (std::size_t r = 0; r < call.counts.size(); ++r) {
        if (call.counts[r] > 0) input = std::max(input, call.offsets[r] + call.counts[r]);
      }
      output = call.counts[static_cast<std::size_t>(rank)];
      break;
  }
}

/// Where the output of a call in place lies, in bytes from the input; false if there is no such place.
bool placeOf(const CollectiveCall& call, int rank, std::ptrdiff_t& offset) {
  const auto part = static_cast<std::ptrdiff_t>(call.count * sizeOf(call.type)) * rank;
  offset = 0;
  switch (call.collective) {
    case CollectiveType::AllReduce:
    case CollectiveType::Reduce:
    case CollectiveType::Broadcast:
      return true;
    case CollectiveType::AllGather:
    case CollectiveType::Gather:
      offset = -part;
      return true;
    case CollectiveType::ReduceScatter:
    case CollectiveType::Scatter:
      offset = part;
      return true;
    case CollectiveType::AllToAll:
      return false;
    case CollectiveType::SendReceive:
      return call.destination == rank;
    case CollectiveType::ReduceScatterV:
      offset = static_cast<std::ptrdiff_t>(call.offsets[static_cast<std::size_t>(rank)] * sizeOf(call.type));
      return true;
  }
  return false;
}

void requireSeparate(const CollectiveCall& call, int rank, const Buffer& input, const Buffer& output) {
  if (input.elements == 0 || output.elements == 0) return;
  const auto from = reinterpret_cast<std::uintptr_t>(input.data);
  const auto to = reinterpret_cast<std::uintptr_t>(output.data);
  const std::size_t size = sizeOf(call.type);
  if (from + input.elements * size <= to || to + output.elements * size <= from) return;
  std::ptrdiff_t offset = 0;
  const bool hasPlace = placeOf(call, rank, offset);
  if (hasPlace && static_cast<std::ptrdiff_t>(to - from) == offset) return;
  throwInvalidCall(call, std::string("input and output overlap") +
                             (!hasPlace                            ? "; this collective has no form in place"
                              : hasVariableCounts(call.collective) ? "; in place, output == input + offsets[rank]"
                              : offset == 0                        ? "; in place, they are the same"
                              : offset > 0                         ? "; in place, output == input + rank * count"
                                                                   : "; in place, input == output + rank * count"));
}

}  // namespace

std::optional<CollectiveType> findCollective(std::string_view name) {
  for (int i = 0; i < collectiveTypes; ++i) {
    const auto collective = static_cast<CollectiveType>(i);
    if (name == nameOf(collective)) return collective;
  }
  return std::nullopt;
}

std::size_t longestCountOf(const CollectiveCall& call) {
  if (!hasVariableCounts(call.collective)) return call.count;
  return call.counts.empty() ? 0 : *std::max_element(call.counts.begin(), call.counts.end());
}

std::size_t bytesOf(const CollectiveCall& call) {
  std::size_t count = longestCountOf(call);
  if (call.collective == CollectiveType::SendReceive) {
    count = std::max(call.destination < 0 ? 0 : call.count, call.origin < 0 ? 0 : call.receivedCount);
  }
  return count * sizeOf(call.type);
}

std::size_t outputBytesOf(const CollectiveCall& call, int rank, int ranks) {
  std::size_t input = 0;
  std::size_t output = 0;
  sizesOf(call, rank, ranks, input, output);
  return output * sizeOf(call.type);
}

void throwInvalidCall(const CollectiveCall& call, const std::string& why) {
  throw Error(std::string(nameOf(call.collective)) + ": " + why, ErrorCode::InvalidUsage);
}

bool requireValid(const CollectiveCall& call, int rank, int ranks) {
  const int collective = static_cast<int>(call.collective);
  if (collective < 0 || collective >= collectiveTypes) throwInvalidCall(call, "unknown collective");
  const std::size_t size = sizeOf(call.type);
  if (size == 0) throwInvalidCall(call, std::string("data type ") + nameOf(call.type) + " is not supported");
  if (hasReduction(call.collective) && !isKnown(call.reduction.op)) {
    throwInvalidCall(call, std::string("operator ") + nameOf(call.reduction.op) + " is not supported");
  }
  if (hasRoot(call.collective)) requireRank(call, "root", call.root, 0, ranks);
  const bool isTransfer = call.collective == CollectiveType::SendReceive;
  if (isTransfer) {
    requireRank(call, "destination", call.destination, -1, ranks);
    requireRank(call, "origin", call.origin, -1, ranks);
    if ((call.destination == rank) != (call.origin == rank) ||
        (call.destination == rank && call.count != call.receivedCount)) {
      throwInvalidCall(call, "a message to oneself is sent and received by the same call, with the same count");
    }
  }
  const auto requireSize = [&](std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / 4 / static_cast<std::size_t>(maxTeamSize) / size) {
      throwInvalidCall(call, "count is larger than the address space; was it a negative number?");
    }
  };
  requireSize(call.count);
  if (isTransfer) requireSize(call.receivedCount);
  if (hasVariableCounts(call.collective)) {
    const auto wanted = static_cast<std::size_t>(ranks);
    if (call.counts.size() != wanted || call.offsets.size() != wanted) {
      throwInvalidCall(call, "there are " + std::to_string(call.counts.size()) + " counts and " +
                                 std::to_string(call.offsets.size()) + " offsets; it takes one of each for each of " +
                                 std::to_string(ranks) + " ranks");
    }
    for (std::size_t r = 0; r < wanted; ++r) {
      requireSize(call.counts[r]);
      requireSize(call.offsets[r]);
    }
  }
  Buffer input{"input", call.input, 0};
  Buffer output{"output", call.output, 0};
  sizesOf(call, rank, ranks, input.elements, output.elements);
  for (const Buffer& buffer : {input, output}) {
    if (buffer.elements > 0 && buffer.data == nullptr) {
      throwInvalidCall(call, std::string(buffer.name) + " is null and count is not 0");
    }
    if (buffer.elements > 0 && reinterpret_cast<std::uintptr_t>(buffer.data) % size != 0) {
      throwInvalidCall(
          call, std::string(buffer.name) + " must be aligned to its elements of " + std::to_string(size) + " bytes");
    }
  }
  requireSeparate(call, rank, input, output);
  return longestCountOf(call) > 0 || (isTransfer && call.receivedCount > 0);
}

}  // namespace mscclpp::kernels
