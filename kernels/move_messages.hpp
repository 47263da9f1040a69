// Collectives that only move data, as messages of an exchange: so one kernel performs several of them.
#pragma once

#include <span>
#include <vector>

#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// The longest message of a collective that is performed together with others: from 128 KiB on a call's own kernel is
/// limited by the links, not by its latency (docs/performance.md).
inline constexpr std::size_t longestJoinedMessage = 64 << 10;

/// How many of the first calls one exchange can perform: short moves without a named algorithm. It follows from what
/// the ranks pass alike, so that it is the same on all of them. The calls are valid.
std::size_t countOfJoinedMoves(std::span<const CollectiveCall> calls, int ranks);

struct Messages {
  std::vector<SentMessage> sent;
  std::vector<ReceivedMessage> received;
};
/// The messages of rank `rank` in such calls.
Messages messagesOf(std::span<const CollectiveCall> moves, int rank, int ranks);

}  // namespace mscclpp::kernels
