// The list of the messages of an exchange: checks, and the order by pairs of ranks.
#include "exchange_call.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::kernels {

namespace {

[[noreturn]] void throwInvalid(const std::string& why) {
  throw Error("exchange: " + why, ErrorCode::InvalidUsage);
}

void requireValid(const char* what, const char* direction, std::size_t index, const void* data, std::size_t bytes,
                  int peer, int ranks) {
  const auto name = [&] { return std::string(what) + " message " + std::to_string(index); };
  if (peer < 0 || peer >= ranks) {
    throwInvalid(name() + " is " + direction + " rank " + std::to_string(peer) + ", but the ranks are 0 to " +
                 std::to_string(ranks - 1));
  }
  if (bytes > std::numeric_limits<std::size_t>::max() / 4) {
    throwInvalid(name() + " is larger than the address space; was its size a negative number?");
  }
  if (bytes > 0 && data == nullptr) throwInvalid(name() + " has no data: the pointer is null");
}

void requireFew(const char* what, std::size_t count, std::size_t most) {
  if (count <= most) return;
  throwInvalid(std::to_string(count) + " messages are " + what + " in a call, which takes up to " +
               std::to_string(most) + ": divide them among several calls");
}

/// Puts the messages of `rank` to itself at the beginning of a list, and returns how many they are. Those that are in
/// their place already are left out: the copy of one onto itself would be a write beside the reads of other messages of
/// the call, as in an all-gather in place.
int putOwnMessages(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, int rank,
                   MessageList& list) {
  const auto requireMatch = [](bool match) {
    if (match) return;
    throwInvalid(
        "messages to oneself are sent and received by the same call, in the same order and with the same sizes");
  };
  const auto isOwn = [&](const ReceivedMessage& message) { return message.origin == rank && message.bytes > 0; };
  int count = 0;
  auto received = receives.begin();
  for (const SentMessage& message : sends) {
    if (message.destination != rank || message.bytes == 0) continue;
    received = std::find_if(received, receives.end(), isOwn);
    requireMatch(received != receives.end() && received->bytes == message.bytes);
    if (received->data != message.data) {
      list.messages[static_cast<std::size_t>(count++)] = {message.data, received->data, message.bytes, 0};
    }
    ++received;
  }
  requireMatch(std::none_of(received, receives.end(), isOwn));
  return count;
}

}  // namespace

void requireValidMessages(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, int ranks) {
  for (std::size_t i = 0; i < sends.size(); ++i) {
    requireValid("sent", "to", i, sends[i].data, sends[i].bytes, sends[i].destination, ranks);
  }
  for (std::size_t i = 0; i < receives.size(); ++i) {
    requireValid("received", "from", i, receives[i].data, receives[i].bytes, receives[i].origin, ranks);
  }
}

MessageList messageListOf(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives, int rank,
                          int ranks) {
  requireFew("sent", sends.size(), maxSentMessages);
  requireFew("received", receives.size(), maxReceivedMessages);
  requireValidMessages(sends, receives, ranks);
  std::array<int, maxTeamSize> sent{};
  std::array<int, maxTeamSize> received{};
  for (const SentMessage& message : sends) {
    if (message.bytes > 0) ++sent[static_cast<std::size_t>(message.destination)];
  }
  for (const ReceivedMessage& message : receives) {
    if (message.bytes > 0) ++received[static_cast<std::size_t>(message.origin)];
  }

  MessageList list;
  // From here on, where the next message to or from a rank is in the list.
  const auto addPair = [&](std::array<int, maxTeamSize>& counts, int peer, PairSide side) {
    int& entry = counts[static_cast<std::size_t>(peer)];
    const int count = entry;
    entry = list.count;
    if (count == 0) return;
    list.pairs[static_cast<std::size_t>(list.pairCount++)] = {
        static_cast<std::uint8_t>(peer), side, static_cast<std::uint8_t>(list.count), static_cast<std::uint8_t>(count)};
    list.count += count;
  };
  sent[static_cast<std::size_t>(rank)] = putOwnMessages(sends, receives, rank, list);
  addPair(sent, rank, PairSide::Alone);
  for (int distance = 1; distance < ranks; ++distance) {
    addPair(sent, (rank + distance) % ranks, PairSide::Sender);
    addPair(received, (rank + ranks - distance) % ranks, PairSide::Receiver);
  }
  for (const SentMessage& message : sends) {
    if (message.bytes == 0 || message.destination == rank) continue;
    const int place = sent[static_cast<std::size_t>(message.destination)]++;
    list.messages[static_cast<std::size_t>(place)] = {message.data, nullptr, message.bytes, 0};
  }
  for (const ReceivedMessage& message : receives) {
    if (message.bytes == 0 || message.origin == rank) continue;
    const int place = received[static_cast<std::size_t>(message.origin)]++;
    list.messages[static_cast<std::size_t>(place)] = {nullptr, message.data, message.bytes, 0};
  }
  return list;
}

MessageList joinedByPair(const MessageList& list) {
  MessageList joined;
  joined.count = joined.pairCount = list.pairCount;
  for (std::size_t p = 0; p < static_cast<std::size_t>(list.pairCount); ++p) {
    PairMessages& pair = joined.pairs[p] = list.pairs[p];
    std::size_t bytes = 0;
    for (std::size_t m = pair.first; m < static_cast<std::size_t>(pair.first + pair.count); ++m)
      bytes = roundUp(bytes, sizeof(Word128)) + list.messages[m].bytes;
    joined.messages[p] = {nullptr, nullptr, bytes, 0};
    pair.first = static_cast<std::uint8_t>(p);
    pair.count = 1;
  }
  return joined;
}

}  // namespace mscclpp::kernels
