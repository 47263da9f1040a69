// 03: packets, which carry a flag with the data, so that no signal and no fence is needed. Device code and set-up;
// cpu.cpp and gpu.cu run them.
#pragma once

#include <cstdint>

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace example {

/// The words of a message, sent as LL16 packets: 8 of a packet's 16 bytes are data.
inline constexpr std::size_t messageWords = 1001;
inline constexpr std::size_t messageBytes = messageWords * sizeof(std::uint32_t);
inline constexpr std::size_t packetBytes = (messageBytes + 7) / 8 * sizeof(mscclpp::LL16Packet);

/// Word i of the message that `rank` sends in a round.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t wordOf(int rank, std::uint32_t round, std::size_t i) {
  return static_cast<std::uint32_t>(rank) * 1'000'000 + round * 10'000 + static_cast<std::uint32_t>(i);
}

/// Both ranks send each other a message a round. `words` is this rank's memory: its message, then the received one.
/// Called by all threads of one group on ranks 0 and 1. Returns how many received words this thread found wrong.
///
/// The packet buffer is double-buffered. One buffer is not enough: a rank that has received the packets of this round
/// knows that its peer has sent them, not that the peer has already read what was sent to it; of the round before, it
/// does.
template <mscclpp::ThreadGroup Group>
MSCCLPP_HOST_DEVICE int exchangePackets(const Group& group, mscclpp::MemoryChannelHandle channel, std::uint32_t* words,
                                        std::uint32_t rounds, int rank) {
  int wrong = 0;
  const std::uint32_t* received = words + messageWords;
  // The number of the round is the flag: it differs from what the packets still hold, and is never 0.
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    for (std::size_t i = group.rank(); i < messageWords; i += group.size()) words[i] = wordOf(rank, round, i);
    group.sync();
    const std::size_t half = round % 2 * packetBytes;
    channel.putPackets(group, half, 0, messageBytes, round);
    channel.unpackPackets(group, half, messageBytes, messageBytes, round);
    group.sync();
    for (std::size_t i = group.rank(); i < messageWords; i += group.size()) {
      if (received[i] != wordOf(1 - rank, round, i)) ++wrong;
    }
  }
  return wrong;
}

/// This rank's end of a channel that carries packets: from `words` into the peer's packet buffer, and from the own
/// `packets` into `words`. Peers see the packet buffer only, so `words` is any memory of this rank.
inline mscclpp::MemoryChannel connectPackets(int peer, mscclpp::Communicator& communicator, std::uint32_t* words,
                                             void* packets, mscclpp::Transport transport) {
  const mscclpp::Connection connection = communicator.connect(transport, peer).get();
  const mscclpp::RegisteredMemory local =
      communicator.registerMemory(words, 2 * messageBytes, mscclpp::TransportFlags());
  const mscclpp::RegisteredMemory localPackets = communicator.registerMemory(packets, 2 * packetBytes, transport);
  communicator.sendMemory(localPackets, peer);
  const mscclpp::RegisteredMemory remotePackets = communicator.recvMemory(peer).get();
  return mscclpp::MemoryChannel(communicator.buildSemaphore(connection, peer).get(), remotePackets, local, packets);
}

}  // namespace example
