#include "messages_by_rank.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

struct Array {
  const char* name;
  const void* data;
};

/// Null of an array that is null, which has no parts: nothing may be added to that.
template <class Byte, class Memory>
Byte* partOf(Memory* array, std::size_t offset) {
  return array == nullptr ? nullptr : static_cast<Byte*>(array) + offset;
}

[[noreturn]] void throwNullArray(const char* call, const char* array) {
  throw Error(std::string(call) + ": " + array + " is null and counts are not 0: pass memory for them",
              ErrorCode::InvalidUsage);
}

/// Throws unless there is a count and an offset for each rank, and an array for what they count; returns the bytes of
/// an element.
std::size_t requireParts(const char* name, int ranks, const Array& array, const PartsOfRanks& parts, DataType type) {
  const auto fail = [&](const std::string& why) {
    throw Error(std::string(name) + ": " + why, ErrorCode::InvalidUsage);
  };
  const auto wanted = static_cast<std::size_t>(ranks);
  if (parts.counts.size() != wanted || parts.offsets.size() != wanted) {
    fail("there are " + std::to_string(parts.counts.size()) + " counts and " + std::to_string(parts.offsets.size()) +
         " offsets; it takes one of each for each of " + std::to_string(ranks) + " ranks");
  }
  const std::size_t size = sizeOf(type);
  if (size == 0) fail(std::string("data type ") + nameOf(type) + " is not supported");
  for (const auto numbers : {parts.counts, parts.offsets}) {
    if (*std::ranges::max_element(numbers) > std::numeric_limits<std::size_t>::max() / 8 / size) {
      fail("a count or offset is larger than the address space; was it a negative number?");
    }
  }
  if (array.data == nullptr && *std::ranges::max_element(parts.counts) > 0) throwNullArray(name, array.name);
  return size;
}

bool overlap(const SentMessage& sent, const ReceivedMessage& received) {
  if (sent.bytes == 0 || received.bytes == 0) return false;
  const auto* const from = static_cast<const std::byte*>(sent.data);
  const auto* const to = static_cast<const std::byte*>(received.data);
  const std::less<const std::byte*> isBefore;
  return isBefore(from, to + received.bytes) && isBefore(to, from + sent.bytes);
}

/// Throws if data is received where other data is sent from. own: what the rank sends to itself.
void requireSeparate(const char* name, int rank, const void* own, std::span<const SentMessage> sends,
                     std::span<const ReceivedMessage> receives) {
  for (const ReceivedMessage& received : receives) {
    if (received.origin == rank && received.data == own) continue;
    for (const SentMessage& sent : sends) {
      if (!overlap(sent, received)) continue;
      throw Error(std::string(name) + ": input and output overlap: the part from rank " +
                      std::to_string(received.origin) + " is written where data for rank " +
                      std::to_string(sent.destination) +
                      " is read; use other memory for the output (only this rank's own part may stay in its place)",
                  ErrorCode::InvalidUsage);
    }
  }
}

}  // namespace

MessagesByRank messagesOfAllGatherV(int rank, int ranks, const void* input, void* output, const PartsOfRanks& parts,
                                    DataType type) {
  const char* const name = "all_gather_v";
  const std::size_t size = requireParts(name, ranks, {"output", output}, parts, type);
  const std::size_t own = parts.counts[static_cast<std::size_t>(rank)] * size;
  if (own > 0 && input == nullptr) throwNullArray(name, "input");
  MessagesByRank messages(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < messages.sent().size(); ++r) {
    const int peer = static_cast<int>(r);
    messages.sent()[r] = {input, own, peer};
    messages.received()[r] = {partOf<std::byte>(output, parts.offsets[r] * size), parts.counts[r] * size, peer};
  }
  // All send the same input.
  requireSeparate(name, rank, input, messages.sent().first(1), messages.received());
  return messages;
}

MessagesByRank messagesOfAllToAllV(int rank, int ranks, const void* input, const PartsOfRanks& sent, void* output,
                                   const PartsOfRanks& received, DataType type) {
  const char* const name = "all_to_all_v";
  const std::size_t size = requireParts(name, ranks, {"input", input}, sent, type);
  requireParts(name, ranks, {"output", output}, received, type);
  MessagesByRank messages(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < messages.sent().size(); ++r) {
    const int peer = static_cast<int>(r);
    messages.sent()[r] = {partOf<const std::byte>(input, sent.offsets[r] * size), sent.counts[r] * size, peer};
    messages.received()[r] = {partOf<std::byte>(output, received.offsets[r] * size), received.counts[r] * size, peer};
  }
  requireSeparate(name, rank, messages.sent()[static_cast<std::size_t>(rank)].data, messages.sent(),
                  messages.received());
  return messages;
}

}  // namespace mscclpp::kernels
