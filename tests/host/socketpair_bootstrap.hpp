// A custom bootstrap for tests: ranks of one machine connected by socket pairs created before they start. It has only
// the six functions that the library needs, in particular no failure detection.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::test {

class SocketpairBootstrap : public Bootstrap {
 public:
  /// `sockets[peer]` is connected to that rank; this object closes them.
  SocketpairBootstrap(int rank, std::vector<int> sockets) : rank_(rank), sockets_(std::move(sockets)) {
    for (int socket : sockets_) {
      const timeval limit{20, 0};
      if (socket >= 0) ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    }
  }
  ~SocketpairBootstrap() override {
    for (int socket : sockets_) {
      if (socket >= 0) ::close(socket);
    }
  }

  /// The sockets of all ranks: result[rank][peer].
  static std::vector<std::vector<int>> makeSocketMesh(int nRanks) {
    std::vector<std::vector<int>> mesh(nRanks, std::vector<int>(nRanks, -1));
    for (int a = 0; a < nRanks; ++a) {
      for (int b = a + 1; b < nRanks; ++b) {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw SysError("socketpair", errno);
        mesh[a][b] = pair[0];
        mesh[b][a] = pair[1];
      }
    }
    return mesh;
  }

  int getRank() const override { return rank_; }
  int getNranks() const override { return static_cast<int>(sockets_.size()); }
  int getNranksPerNode() const override { return getNranks(); }

  using Bootstrap::recv;
  using Bootstrap::send;

  void send(void* data, int size, int peer, int tag) override {
    if (peer == rank_) {
      const auto* bytes = static_cast<const char*>(data);
      arrived_[{peer, tag}].emplace_back(bytes, bytes + size);
      return;
    }
    Header header{tag, size};
    sendAll(peer, &header, sizeof(header));
    sendAll(peer, data, static_cast<std::size_t>(size));
  }

  void recv(void* data, int size, int peer, int tag) override {
    auto& queue = arrived_[{peer, tag}];
    while (queue.empty()) {
      if (peer == rank_) throw Error("nothing was sent to self", ErrorCode::Timeout);
      Header header;
      receiveAll(peer, &header, sizeof(header));
      std::vector<char> bytes(static_cast<std::size_t>(header.size));
      receiveAll(peer, bytes.data(), bytes.size());
      arrived_[{peer, header.tag}].push_back(std::move(bytes));
    }
    if (queue.front().size() != static_cast<std::size_t>(size)) throw Error("sizes differ", ErrorCode::RemoteError);
    if (size > 0) std::memcpy(data, queue.front().data(), static_cast<std::size_t>(size));
    queue.pop_front();
  }

  void allGather(void* allData, int size) override {
    auto* slots = static_cast<char*>(allData);
    for (int peer = 0; peer < getNranks(); ++peer) {
      if (peer != rank_) send(slots + static_cast<std::ptrdiff_t>(rank_) * size, size, peer, gatherTag);
    }
    for (int peer = 0; peer < getNranks(); ++peer) {
      if (peer != rank_) recv(slots + static_cast<std::ptrdiff_t>(peer) * size, size, peer, gatherTag);
    }
  }

  void barrier() override {
    std::vector<char> tokens(sockets_.size());
    allGather(tokens.data(), 1);
  }

 private:
  struct Header {
    int tag;
    int size;
  };
  static constexpr int gatherTag = -2;

  void sendAll(int peer, const void* data, std::size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t count = ::send(sockets_[peer], bytes, size, MSG_NOSIGNAL);
      if (count < 0 && errno != EINTR) throw SysError("send to rank " + std::to_string(peer), errno);
      if (count > 0) {
        bytes += count;
        size -= static_cast<std::size_t>(count);
      }
    }
  }

  void receiveAll(int peer, void* data, std::size_t size) {
    auto* bytes = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t count = ::recv(sockets_[peer], bytes, size, 0);
      if (count == 0) throw Error("rank " + std::to_string(peer) + " is gone", ErrorCode::RemoteError);
      if (count < 0 && errno != EINTR) throw SysError("recv from rank " + std::to_string(peer), errno);
      if (count > 0) {
        bytes += count;
        size -= static_cast<std::size_t>(count);
      }
    }
  }

  int rank_;
  std::vector<int> sockets_;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> arrived_;
};

}  // namespace mscclpp::test
