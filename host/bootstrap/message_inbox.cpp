#include "host/bootstrap/message_inbox.hpp"

#include <algorithm>

namespace mscclpp::detail {

namespace {

// The bytes charged for a message: even an empty one takes memory.
std::size_t charge(std::size_t messageBytes) {
  return std::max<std::size_t>(messageBytes, 512);
}

}  // namespace

bool MessageInbox::hasRoom(int sender, std::size_t messageBytes) const {
  return bytes_[sender] + charge(messageBytes) <= limit_;
}

void MessageInbox::put(int sender, int tag, Bytes message) {
  bytes_[sender] += charge(message.size());
  queues_[{sender, tag}].push_back(std::move(message));
}

std::optional<Bytes> MessageInbox::take(int sender, int tag) {
  const auto queue = queues_.find({sender, tag});
  if (queue == queues_.end()) return std::nullopt;
  Bytes message = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  bytes_[sender] -= charge(message.size());
  return message;
}

}  // namespace mscclpp::detail
