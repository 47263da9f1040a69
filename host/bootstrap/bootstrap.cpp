#include "mscclpp/host/bootstrap/bootstrap.hpp"

#include <algorithm>
#include <string>

#include "host/bootstrap/dissemination.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace {

// A vector is sent as its length followed by messages of at most this size. The receiver allocates memory for one
// message at a time: an announced length costs no memory before its bytes arrive.
constexpr std::size_t maxMessageBytes = std::size_t{1} << 24;

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
  const int size = static_cast<int>(members.size());
  const int position = static_cast<int>(self - members.begin());
  char token = 0;
  detail::disseminationBarrier(
      position, size, [&](int to) { send(&token, 1, members[to], GroupBarrierTag); },
      [&](int from) { recv(&token, 1, members[from], GroupBarrierTag); });
}

void Bootstrap::send(const std::vector<char>& data, int peer, int tag) {
  if (data.size() > MaxVectorBytes) {
    throw Error("send: a vector of " + std::to_string(data.size()) + " bytes exceeds the limit of " +
                    std::to_string(MaxVectorBytes) + "; send it in parts",
                ErrorCode::InvalidUsage);
  }
  std::uint64_t length = data.size();
  send(&length, sizeof(length), peer, tag);
  for (std::size_t offset = 0; offset < data.size(); offset += maxMessageBytes) {
    const std::size_t bytes = std::min(maxMessageBytes, data.size() - offset);
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
  data.clear();
  while (data.size() < length) {
    const std::size_t offset = data.size();
    const std::size_t bytes = std::min(maxMessageBytes, length - offset);
    data.resize(offset + bytes);
    recv(data.data() + offset, static_cast<int>(bytes), peer, tag);
  }
}

}  // namespace mscclpp
