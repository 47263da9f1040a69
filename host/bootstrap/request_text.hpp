// How the calls of a bootstrap are named in errors.
#pragma once

#include <cstddef>
#include <string>

namespace mscclpp::detail {

enum class Direction { Send, Receive };

/// "recv of 8 bytes from rank 3, tag 1" if the caller chose the tag; "barrier, waiting for rank 3" for a step of a
/// collective, whose tags are negative.
inline std::string describeRequest(const char* operation, Direction direction, int peer, int tag, std::size_t bytes) {
  const std::string rank = "rank " + std::to_string(peer);
  if (tag < 0) return operation + std::string(direction == Direction::Send ? ", sending to " : ", waiting for ") + rank;
  return operation + std::string(" of ") + std::to_string(bytes) + (bytes == 1 ? " byte " : " bytes ") +
         (direction == Direction::Send ? "to " : "from ") + rank + ", tag " + std::to_string(tag);
}

}  // namespace mscclpp::detail
