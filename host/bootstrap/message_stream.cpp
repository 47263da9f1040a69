#include "host/bootstrap/message_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace mscclpp::detail {

namespace {

// The buffer of a message grows as its bytes arrive, so that an announced length alone cannot allocate memory.
constexpr std::size_t receiveBufferStep = std::size_t{4} << 20;

StreamStatus statusOfError() {
  switch (errno) {
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
      return StreamStatus::Blocked;
    case ENOBUFS:
    case ENOMEM:
      return StreamStatus::NoMemory;
    default:
      return StreamStatus::Broken;
  }
}

}  // namespace

StreamStatus MessageReader::read(const UniqueFd& socket, std::size_t& budget) {
  while (true) {
    if (headerBytes_ == sizeof(header_) && payloadBytes_ == header_.size) return StreamStatus::Message;
    if (budget == 0) return StreamStatus::Blocked;
    char* target = reinterpret_cast<char*>(&header_) + headerBytes_;
    std::size_t wanted = sizeof(header_) - headerBytes_;
    const bool readsHeader = wanted > 0;
    if (!readsHeader) {
      if (payloadBytes_ == payload_.size()) {
        payload_.resize(std::min<std::size_t>(header_.size, payloadBytes_ + receiveBufferStep));
      }
      target = payload_.data() + payloadBytes_;
      wanted = payload_.size() - payloadBytes_;
    }
    const ssize_t count = ::recv(socket.get(), target, wanted, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return statusOfError();
    if (count == 0) return StreamStatus::Closed;
    const auto received = static_cast<std::size_t>(count);
    budget -= std::min(budget, received);
    (readsHeader ? headerBytes_ : payloadBytes_) += received;
    if (readsHeader && headerBytes_ == sizeof(header_)) return StreamStatus::Header;
  }
}

Bytes MessageReader::takePayload() {
  headerBytes_ = 0;
  payloadBytes_ = 0;
  return std::exchange(payload_, Bytes());
}

void MessageWriter::push(Bytes message) {
  std::lock_guard lock(mutex_);
  bytes_ += message.size();
  queue_.push_back(std::move(message));
}

void MessageWriter::clear() {
  std::lock_guard lock(mutex_);
  for (const Bytes& message : queue_) bytes_ -= message.size();
  queue_.clear();
}

std::size_t MessageWriter::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

StreamStatus MessageWriter::write(const UniqueFd& socket, std::size_t& messagesWritten) {
  while (true) {
    if (current_.empty()) {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return StreamStatus::Message;
      current_ = std::move(queue_.front());
      queue_.pop_front();
      written_ = 0;
    }
    const ssize_t count = ::send(socket.get(), current_.data() + written_, current_.size() - written_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return statusOfError();
    written_ += static_cast<std::size_t>(count);
    if (written_ < current_.size()) continue;
    std::lock_guard lock(mutex_);
    bytes_ -= current_.size();
    current_.clear();
    ++messagesWritten;
  }
}

}  // namespace mscclpp::detail
