// Messages that have arrived and have not been received, by sender and tag.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "host/bootstrap/mesh_message.hpp"

namespace mscclpp::detail {

/// Not synchronised: guarded by its owner's mutex.
class MessageInbox {
 public:
  /// `limit`: maximum number of queued bytes per sender. One message of that size always fits.
  MessageInbox(int numRanks, std::size_t limit) : limit_(limit), bytes_(numRanks) {}

  std::size_t limit() const { return limit_; }
  bool hasRoom(int sender, std::size_t messageBytes) const;
  void put(int sender, int tag, Bytes message);
  bool contains(int sender, int tag) const { return queues_.count({sender, tag}) != 0; }
  /// The oldest message of that sender and tag.
  std::optional<Bytes> take(int sender, int tag);

 private:
  const std::size_t limit_;
  std::vector<std::size_t> bytes_;  // by sender
  std::map<std::pair<int, int>, std::deque<Bytes>> queues_;
};

}  // namespace mscclpp::detail
