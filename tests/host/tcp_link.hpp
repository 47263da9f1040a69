// One side of a connection over TCP between two ranks, with memory at both ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::test {

/// Lives until the process ends: peers may write memory as long as its registration has copies, which the communicator
/// has, too.
inline std::vector<char>& keptBuffer(std::size_t bytes) {
  static std::mutex mutex;
  static std::deque<std::vector<char>> buffers;
  std::lock_guard lock(mutex);
  return buffers.emplace_back(bytes);
}

struct TcpLink {
  /// Both ranks call it.
  TcpLink(Communicator& communicator, int peer, std::size_t bytes)
      : connection(communicator.connect({Transport::Ethernet, DeviceType::CPU}, peer).get()),
        data(keptBuffer(bytes)),
        local(communicator.registerMemory(data.data(), data.size(), Transport::Ethernet)) {
    communicator.sendMemory(local, peer);
    remote = communicator.recvMemory(peer).get();
  }

  /// Has the peer's first word store one more than before.
  void update() { connection.updateAndSync(remote, 0, &word, word + 1); }

  Connection connection;
  std::vector<char>& data;
  RegisteredMemory local;
  RegisteredMemory remote;
  std::uint64_t word = 0;
};

}  // namespace mscclpp::test
