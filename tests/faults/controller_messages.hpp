// Messages between the controller of the random kills and its ranks: structures, over a socket pair.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::faults {

enum class MessageType : std::uint32_t {
  CreateUniqueId,   ///< to a rank: create a UniqueId
  Start,            ///< to a rank: connect, and call collectives until one throws
  UniqueIdCreated,  ///< from a rank: the UniqueId
  Running,          ///< from a rank: the ranks are connected, the calls begin
  Failed,           ///< from a rank: a call has thrown
  CleanedUp,        ///< from a rank: everything is destroyed; the resources that the process still holds
  UnexpectedError,  ///< from a rank: an unexpected exception
};

/// Plain data. Fields that a message type does not use are zero.
struct Message {
  MessageType type = MessageType::UnexpectedError;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::uint32_t seed = 0;
  std::int32_t code = 0;           ///< Failed: an ErrorCode
  std::uint32_t calls = 0;         ///< Failed: the number of successful calls
  std::int32_t resources[3] = {};  ///< CleanedUp: descriptors, threads, mappings of shared memory
  UniqueId id{};
  char text[512] = {};
};

inline void setText(Message& message, const char* text) {
  std::snprintf(message.text, sizeof(message.text), "%s", text);
}

/// Returns false if the other side has closed the socket.
inline bool sendMessage(int socket, const Message& message) {
  return ::send(socket, &message, sizeof(message), MSG_NOSIGNAL) == sizeof(message);
}

enum class ReceiveStatus { Received, TimedOut, Closed };

/// Receives the next message, waiting until `until`.
inline ReceiveStatus receiveMessage(int socket, Message& message, std::chrono::steady_clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd entry{socket, POLLIN, 0};
    const int ready = ::poll(&entry, 1, left > 0 ? static_cast<int>(left) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return ReceiveStatus::TimedOut;
    return ::recv(socket, &message, sizeof(message), 0) == sizeof(message) ? ReceiveStatus::Received
                                                                           : ReceiveStatus::Closed;
  }
}

}  // namespace mscclpp::faults
