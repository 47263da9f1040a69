// The messages between the ranks of a mesh: a header, then its payload.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace mscclpp::detail {

using Bytes = std::vector<char>;

enum class MessageType : std::uint32_t {
  Data = 1,
  Heartbeat,
  Goodbye,        ///< the sender leaves in order: nothing follows
  FailureReport,  ///< tag: the rank that failed; payload: the reason
  Process,        ///< payload: the sender's ProcessIdentity
  ContextLeft,    ///< tag: the context (contextOf) that the sender leaves: no data of it follows
};

/// The contexts of a mesh divide its tags: each has this many. Context 0 is all of them together.
inline constexpr int tagsOfContext = 1 << 16;
inline constexpr int largestContext = (1 << 15) - 1;
constexpr int contextOf(int tag) {
  return tag < 0 ? 0 : tag / tagsOfContext;
}

struct MessageHeader {
  MessageType type;
  std::int32_t tag;
  std::uint64_t size;  ///< of the payload, in bytes

  /// Whether a correct rank could have sent it.
  bool isValid() const {
    if (type == MessageType::Data) return size <= INT_MAX;
    return type > MessageType::Data && type <= MessageType::ContextLeft && size <= maxControlBytes;
  }

  /// Maximum payload of a message other than Data.
  static constexpr std::size_t maxControlBytes = 1024;
};
static_assert(std::has_unique_object_representations_v<MessageHeader>);

inline Bytes encodeMessage(MessageType type, int tag, const void* payload, std::size_t size) {
  const MessageHeader header{type, tag, size};
  Bytes bytes(sizeof(header) + size);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (size > 0) std::memcpy(bytes.data() + sizeof(header), payload, size);
  return bytes;
}

}  // namespace mscclpp::detail
