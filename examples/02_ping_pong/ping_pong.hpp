// 02: ping-pong over a memory channel. The device code, and the set-up of a channel; cpu.cpp and gpu.cu run them.
#pragma once

#include <cstdint>

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory_channel.hpp"

namespace example {

/// The ball is `count` words that lie in both ranks' memory. Whose turn it is adds 1 to each and puts them to the peer.
/// Called by all threads of one group on ranks 0 and 1. Afterwards all words are `turns`, on both ranks.
template <mscclpp::ThreadGroup Group>
MSCCLPP_HOST_DEVICE void playPingPong(const Group& group, mscclpp::MemoryChannelHandle channel, std::uint32_t* ball,
                                      int count, int turns, int rank) {
  for (int turn = 0; turn < turns; ++turn) {
    if (turn % 2 == rank) {
      for (int i = group.rank(); i < count; i += group.size()) ball[i] += 1;
      group.sync();  // put() deals the words out to the threads in another way than the loop above
      channel.put(group, 0, 0, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
      group.sync();  // the signal is to come after the stores of all threads
      if (group.rank() == 0) channel.signal();
    } else {
      // A wait that fails (the peer is gone, or late) returns: the host learns of it from the communicator's monitor.
      if (group.rank() == 0) channel.wait();
      group.sync();  // what the waiting thread knows to have arrived, all now know
    }
  }
}

/// This rank's end of a channel from `memory` to the memory of the peer. Both ranks call it.
inline mscclpp::MemoryChannel connectTo(int peer, mscclpp::Communicator& communicator, void* memory, std::size_t bytes,
                                        mscclpp::Transport transport) {
  const mscclpp::Connection connection = communicator.connect(transport, peer).get();
  const mscclpp::RegisteredMemory local = communicator.registerMemory(memory, bytes, transport);
  communicator.sendMemory(local, peer);
  const mscclpp::RegisteredMemory remote = communicator.recvMemory(peer).get();
  return mscclpp::MemoryChannel(communicator.buildSemaphore(connection, peer).get(), remote, local);
}

}  // namespace example
