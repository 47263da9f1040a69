#include "mscclpp/host/bootstrap.hpp"

#include <algorithm>
#include <string>

#include "mscclpp/host/error.hpp"

namespace mscclpp {

namespace {

// A vector travels as its length and then pieces, since one message is at most INT_MAX bytes.
constexpr std::size_t pieceBytes = std::size_t{1} << 28;

}  // namespace

void Bootstrap::groupBarrier(const std::vector<int>& ranks) {
  std::vector<int> members = ranks;
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  const auto self = std::find(members.begin(), members.end(), getRank());
  if (self == members.end()) {
    throw Error("groupBarrier: rank " + std::to_string(getRank()) + " called it for a group that it is not in",
                ErrorCode::InvalidUsage);
  }
  if (members.front() < 0 || members.back() >= getNranks()) {
    throw Error("groupBarrier: the ranks must lie in [0, " + std::to_string(getNranks()) + ")",
                ErrorCode::InvalidUsage);
  }
  // Dissemination: after round k a rank knows of 2^k others, so log2(size) rounds do, and none is a bottleneck.
  const int size = static_cast<int>(members.size());
  const int position = static_cast<int>(self - members.begin());
  for (int distance = 1; distance < size; distance *= 2) {
    char token = 0;
    send(&token, 1, members[(position + distance) % size], GroupBarrierTag);
    recv(&token, 1, members[(position - distance + size) % size], GroupBarrierTag);
  }
}

void Bootstrap::send(const std::vector<char>& data, int peer, int tag) {
  if (data.size() > MaxVectorBytes) {
    throw Error("send: a vector of " + std::to_string(data.size()) + " bytes exceeds the limit of " +
                    std::to_string(MaxVectorBytes) + "; send it in parts",
                ErrorCode::InvalidUsage);
  }
  std::uint64_t length = data.size();
  send(&length, sizeof(length), peer, tag);
  for (std::size_t offset = 0; offset < data.size(); offset += pieceBytes) {
    const std::size_t bytes = std::min(pieceBytes, data.size() - offset);
    send(const_cast<char*>(data.data()) + offset, static_cast<int>(bytes), peer, tag);
  }
}

void Bootstrap::recv(std::vector<char>& data, int peer, int tag) {
  std::uint64_t length = 0;
  recv(&length, sizeof(length), peer, tag);
  if (length > MaxVectorBytes) {
    throw Error("recv: rank " + std::to_string(peer) + " announced a vector of " + std::to_string(length) +
                    " bytes on tag " + std::to_string(tag) + ", more than the limit of " +
                    std::to_string(MaxVectorBytes),
                ErrorCode::RemoteError);
  }
  data.resize(length);
  for (std::size_t offset = 0; offset < data.size(); offset += pieceBytes) {
    const std::size_t bytes = std::min(pieceBytes, data.size() - offset);
    recv(data.data() + offset, static_cast<int>(bytes), peer, tag);
  }
}

}  // namespace mscclpp
