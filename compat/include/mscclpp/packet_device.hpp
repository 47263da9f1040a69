// MSCCL++'s packets, and copies to and from them by numbered threads.
#pragma once

#include "mscclpp/atomic_device.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/packet/copy_packets.hpp"
#include "mscclpp/packet/ll16.hpp"
#include "mscclpp/packet/ll8.hpp"
#include "mscclpp/poll_device.hpp"

namespace mscclpp {

using LLPacket = LL16Packet;

template <typename PacketType = LL16Packet>
MSCCLPP_HOST_DEVICE_INLINE void copyToPackets(void* dst, const void* src, std::uint64_t bytes, std::uint32_t threadId,
                                              std::uint32_t numThreads, std::uint32_t flag) {
  copyToPackets<PacketType>(ThreadRange(threadId, numThreads), dst, src, bytes, flag);
}

template <typename PacketType = LL16Packet>
MSCCLPP_HOST_DEVICE_INLINE void copyFromPackets(void* dst, const void* src, std::uint64_t bytes, std::uint32_t threadId,
                                                std::uint32_t numThreads, std::uint32_t flag,
                                                std::int64_t maxSpinCount = -1) {
  TrappingWait wait(maxSpinCount);
  copyFromPackets<PacketType>(ThreadRange(threadId, numThreads), dst, src, bytes, flag, wait);
}

}  // namespace mscclpp
