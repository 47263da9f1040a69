#include "move_messages.hpp"

#include <algorithm>
#include <cstddef>

#include "call_arguments.hpp"

namespace mscclpp::kernels {

namespace {

bool isMove(CollectiveType collective) {
  switch (collective) {
    case CollectiveType::AllGather:
    case CollectiveType::AllToAll:
    case CollectiveType::Broadcast:
    case CollectiveType::Gather:
    case CollectiveType::Scatter:
      return true;
    default:
      return false;
  }
}

bool sends(const CollectiveCall& call, int rank) {
  const bool isRoots = call.collective == CollectiveType::Broadcast || call.collective == CollectiveType::Scatter;
  return !isRoots || rank == call.root;
}
bool receives(const CollectiveCall& call, int rank) {
  return call.collective != CollectiveType::Gather || rank == call.root;
}

}  // namespace

std::size_t countOfJoinedMoves(std::span<const CollectiveCall> calls, int ranks) {
  // Whatever a rank's part in them is: a call has at most as many messages in a direction as there are ranks.
  const std::size_t most = std::min(maxSentMessages, maxReceivedMessages) / static_cast<std::size_t>(ranks);
  std::size_t count = 0;
  while (count < std::min(most, calls.size())) {
    const CollectiveCall& call = calls[count];
    if (!isMove(call.collective) || !call.algorithm.empty() || bytesOf(call) > longestJoinedMessage) break;
    ++count;
  }
  return count;
}

Messages messagesOf(std::span<const CollectiveCall> moves, int rank, int ranks) {
  Messages messages;
  for (const CollectiveCall& call : moves) {
    const std::size_t bytes = bytesOf(call);
    const auto* input = static_cast<const std::byte*>(call.input);
    auto* output = static_cast<std::byte*>(call.output);
    const bool hasParts = call.collective == CollectiveType::AllToAll || call.collective == CollectiveType::Scatter;
    for (int peer = 0; peer < ranks; ++peer) {
      const std::size_t part = static_cast<std::size_t>(peer) * bytes;
      if (sends(call, rank) && receives(call, peer))
        messages.sent.push_back({input + (hasParts ? part : 0), bytes, peer});
      if (sends(call, peer) && receives(call, rank)) {
        const bool isWhole = call.collective == CollectiveType::Broadcast || call.collective == CollectiveType::Scatter;
        messages.received.push_back({output + (isWhole ? 0 : part), bytes, peer});
      }
    }
  }
  return messages;
}

}  // namespace mscclpp::kernels
