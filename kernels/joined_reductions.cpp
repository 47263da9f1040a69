#include "joined_reductions.hpp"

#include <algorithm>

#include "algorithms.hpp"
#include "call_arguments.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"

namespace mscclpp::kernels {

namespace {

bool isJoinable(const CollectiveCall& call) {
  return isJoined(call.collective) && call.algorithm.empty() && bytesOf(call) <= longestJoinedReduction;
}

bool areAlike(const CollectiveCall& a, const CollectiveCall& b) {
  return a.collective == b.collective && a.type == b.type && a.reduction.op == b.reduction.op;
}

std::size_t paddedBytesOf(const CollectiveCall& call) {
  return roundUp(bytesOf(call), sizeof(Word128));
}

}  // namespace

std::size_t countOfJoinedReductions(std::span<const CollectiveCall> calls, std::size_t mostBytes) {
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (; count < std::min(maxJoinedReductions, calls.size()); ++count) {
    const CollectiveCall& call = calls[count];
    if (!isJoinable(call) || !areAlike(call, calls.front())) break;
    bytes += paddedBytesOf(call);
    if (bytes > mostBytes) break;
  }
  return count;
}

CollectiveCall joinedCallOf(std::span<const CollectiveCall> calls) {
  const CollectiveCall& first = calls.front();
  std::size_t bytes = 0;
  for (const CollectiveCall& call : calls) bytes += paddedBytesOf(call);
  return {.collective = first.collective,
          .count = bytes / sizeOf(first.type),
          .type = first.type,
          .reduction = first.reduction.op,
          .stream = first.stream};
}

}  // namespace mscclpp::kernels
