// 02: ping-pong over a memory channel. The device code, and the set-up of a channel; cpu.cpp and gpu.cu run them.
#pragma once

#include <cstdint>

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace example {

/// The data is `count` words that lie in both ranks' memory. The ranks alternate: each adds 1 to every word and puts
/// them to the peer. Called by all threads of one group on ranks 0 and 1. Afterwards all words are `rounds`, on both
/// ranks.
template <mscclpp::ThreadGroup Group>
MSCCLPP_HOST_DEVICE void pingPong(const Group& group, mscclpp::MemoryChannelHandle channel, std::uint32_t* data,
                                  int count, int rounds, int rank) {
  for (int turn = 0; turn < rounds; ++turn) {
    if (turn % 2 == rank) {
      for (int i = group.rank(); i < count; i += group.size()) data[i] += 1;
      group.sync();  // put() distributes the words over the threads differently than the loop above
      channel.put(group, 0, 0, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
      group.sync();  // orders the stores of all threads before the signal
      if (group.rank() == 0) channel.signal();
    } else {
      // A wait that fails (the peer has failed or timed out) returns; the communicator's monitor reports it on the
      // host.
      if (group.rank() == 0) channel.wait();
      group.sync();  // makes the arrived words visible to all threads
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
