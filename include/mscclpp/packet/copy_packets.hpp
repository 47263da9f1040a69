// Copies between plain memory and packets by a group of threads: any number of bytes; the last packet is padded.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/packet/ll16.hpp"

namespace mscclpp {

namespace detail {

/// The bytes [offset, offset + sizeof(Payload)) of src, with zeros from `bytes` on.
template <class Payload>
MSCCLPP_INLINE Payload loadPayload(const std::byte* src, std::size_t offset, std::size_t bytes) {
  if (offset + sizeof(Payload) <= bytes && reinterpret_cast<std::uintptr_t>(src) % alignof(Payload) == 0) {
    return *reinterpret_cast<const Payload*>(src + offset);
  }
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(Payload) && offset + i < bytes; ++i) {
    bits |= static_cast<std::uint64_t>(src[offset + i]) << (8 * i);
  }
  return arch::bitCast<Payload>(static_cast<arch::WordFor<Payload>>(bits));
}

template <class Payload>
MSCCLPP_INLINE void storePayload(std::byte* dst, std::size_t offset, std::size_t bytes, Payload payload) {
  if (offset + sizeof(Payload) <= bytes && reinterpret_cast<std::uintptr_t>(dst) % alignof(Payload) == 0) {
    *reinterpret_cast<Payload*>(dst + offset) = payload;
    return;
  }
  const std::uint64_t bits = arch::bitCast<arch::WordFor<Payload>>(payload);
  for (std::size_t i = 0; i < sizeof(Payload) && offset + i < bytes; ++i)
    dst[offset + i] = static_cast<std::byte>(bits >> (8 * i));
}

}  // namespace detail

/// Sends `bytes` bytes at src as ceil(bytes / sizeof(Payload)) packets at dst. Called by every thread of group; does
/// not sync. flag: not 0, and different from every flag that the packets may still hold.
template <class PacketType = LL16Packet, ThreadGroup Group>
MSCCLPP_INLINE void copyToPackets(const Group& group, void* dst, const void* src, std::size_t bytes,
                                  std::uint32_t flag) {
  using Payload = typename PacketType::Payload;
  auto* packets = static_cast<PacketType*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const std::size_t count = ceilDivide(bytes, sizeof(Payload));
  for (std::size_t i = static_cast<std::size_t>(group.rank()); i < count; i += static_cast<std::size_t>(group.size())) {
    packets[i].write(detail::loadPayload<Payload>(from, i * sizeof(Payload), bytes), flag);
  }
}

/// Receives what copyToPackets() sent: waits for each packet at src and stores its payload to dst, `bytes` bytes in
/// all. Called by every thread of group; does not sync. Returns false if a wait of the calling thread failed.
template <class PacketType = LL16Packet, ThreadGroup Group, WaitPolicy Wait>
MSCCLPP_INLINE bool copyFromPackets(const Group& group, void* dst, const void* src, std::size_t bytes,
                                    std::uint32_t flag, Wait& wait, int rank = -1, int peer = -1) {
  using Payload = typename PacketType::Payload;
  const auto* packets = static_cast<const PacketType*>(src);
  auto* to = static_cast<std::byte*>(dst);
  const std::size_t count = ceilDivide(bytes, sizeof(Payload));
  bool arrived = true;
  for (std::size_t i = static_cast<std::size_t>(group.rank()); i < count; i += static_cast<std::size_t>(group.size())) {
    Payload payload{};
    arrived &= wait.until(WaitSite{WaitOperation::Packet, rank, peer, 0, flag}, [&](std::uint64_t& seen) {
      const bool complete = packets[i].tryRead(flag, payload);
      seen = complete ? flag : 0;
      return complete;
    });
    detail::storePayload(to, i * sizeof(Payload), bytes, payload);
  }
  return arrived;
}

}  // namespace mscclpp
