// Messages over a non-blocking socket: the reader splits the stream as bytes arrive, the writer writes as much as the
// socket accepts.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "host/base/unique_fd.hpp"
#include "host/bootstrap/mesh_message.hpp"

namespace mscclpp::detail {

enum class StreamStatus {
  Header,    ///< reading: a header is complete, and its payload has not been read
  Message,   ///< reading: a message is complete
  Blocked,   ///< nothing more can be transferred now
  NoMemory,  ///< the system is out of memory: retry shortly
  Closed,    ///< reading: the peer has closed the connection
  Broken,    ///< the connection is broken; errno has the reason
};

/// Used by one thread.
class MessageReader {
 public:
  /// Reads up to the next event, at most about `budget` bytes, from which it subtracts what it has read.
  StreamStatus read(const UniqueFd& socket, std::size_t& budget);

  /// After StreamStatus::Header and StreamStatus::Message.
  const MessageHeader& header() const { return header_; }
  /// After StreamStatus::Message: its payload. The next read begins the next message.
  Bytes takePayload();

 private:
  MessageHeader header_{};
  std::size_t headerBytes_ = 0;
  Bytes payload_;
  std::size_t payloadBytes_ = 0;
};

/// Any thread adds messages; one writes them.
class MessageWriter {
 public:
  void push(Bytes message);
  /// Drops all messages but the one that is being written.
  void clear();
  /// Bytes that have not been written; the message in progress counts in full.
  std::size_t bytes() const;

  /// Writes until everything is written, which returns StreamStatus::Message, or the socket accepts no more.
  /// `messagesWritten` is increased by the number of messages that were completed.
  StreamStatus write(const UniqueFd& socket, std::size_t& messagesWritten);

 private:
  mutable std::mutex mutex_;
  std::deque<Bytes> queue_;
  std::size_t bytes_ = 0;
  // Used by the writing thread.
  Bytes current_;
  std::size_t written_ = 0;
};

}  // namespace mscclpp::detail
