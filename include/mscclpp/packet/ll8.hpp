// LL8 packet: 4 bytes of data and a 4-byte flag in one 8-byte word.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A flag must differ from every flag that the slot may still hold; data and flag arrive together. Memory starts as zero and flag 0 is never used.
struct alignas(8) LL8Packet {
  using Payload = std::uint32_t;

  std::uint32_t data;
  std::uint32_t flag;

  LL8Packet() = default;
  MSCCLPP_INLINE LL8Packet(Payload payload, std::uint32_t mark) : data(payload), flag(mark) {}

  /// Sends payload; one store.
  MSCCLPP_INLINE void write(Payload payload, std::uint32_t newFlag) {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<std::uint64_t*>(this),
                                                           static_cast<std::uint64_t>(newFlag) << 32 | payload);
  }

  /// The packet as it is now; one load. Its flag and data can then be looked at without another.
  MSCCLPP_INLINE LL8Packet load() const {
    return arch::bitCast<LL8Packet>(
        arch::load<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<const std::uint64_t*>(this)));
  }
  /// Of a loaded packet: whether it carries this flag, and its data.
  MSCCLPP_INLINE bool carries(std::uint32_t expected) const { return flag == expected; }
  MSCCLPP_INLINE Payload payload() const { return data; }

  /// Whether the payload of this flag has arrived; if so, it is in `payload`. One load, no waiting.
  MSCCLPP_INLINE bool tryRead(std::uint32_t expected, Payload& payload) const {
    const LL8Packet now = load();
    payload = now.payload();
    return now.carries(expected);
  }

  // MSCCL++'s forms.
  /// The reverse of tryRead: true = not there yet.
  MSCCLPP_INLINE bool readOnce(std::uint32_t expected, Payload& payload) const { return !tryRead(expected, payload); }
  /// Waits for the payload of this flag; see TrappingWait for the limit.
  MSCCLPP_INLINE Payload read(std::uint32_t expected, std::int64_t maxSpinCount = 1000000) const {
    return detail::readPacket(*this, expected, maxSpinCount);
  }

  /// Forgets what the slot holds.
  MSCCLPP_INLINE void clear() {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<std::uint64_t*>(this), std::uint64_t{0});
  }
};
static_assert(sizeof(LL8Packet) == 8 && Packet<LL8Packet>);

}  // namespace mscclpp
