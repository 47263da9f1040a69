// LL8 packet: 4 bytes of data and a 4-byte flag in one 8-byte word.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A packet, one atomic word: data and flag arrive together. A flag must differ from every flag that the slot may still
/// hold; slots are zero-initialised, and flag 0 is never used. Calls are made by one thread; accesses are relaxed at
/// system scope.
union alignas(8) LL8Packet {
  using Payload = std::uint32_t;

  MSCCLPP_EXTENSION struct {
    std::uint32_t data;
    std::uint32_t flag;
  };
  std::uint64_t raw_;  ///< the same 8 bytes

  LL8Packet() = default;
  MSCCLPP_INLINE LL8Packet(Payload payload, std::uint32_t flagValue) {
    data = payload;
    flag = flagValue;
  }

  /// Sends payload with this flag, in one store.
  MSCCLPP_INLINE void write(Payload payload, std::uint32_t newFlag) {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<std::uint64_t*>(this),
                                                           static_cast<std::uint64_t>(newFlag) << 32 | payload);
  }

  /// Returns a copy of the packet, in one load. Its flag and data can then be read without another load.
  MSCCLPP_INLINE LL8Packet load() const {
    return arch::bitCast<LL8Packet>(
        arch::load<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<const std::uint64_t*>(this)));
  }
  /// For a loaded packet: whether it has this flag, and the data.
  MSCCLPP_INLINE bool hasFlag(std::uint32_t expected) const { return flag == expected; }
  MSCCLPP_INLINE Payload payload() const { return data; }

  /// Returns whether a payload with this flag has arrived and, if so, stores it in `payload`. Does not wait.
  MSCCLPP_INLINE bool tryRead(std::uint32_t expected, Payload& payload) const {
    const LL8Packet now = load();
    payload = now.payload();
    return now.hasFlag(expected);
  }

  // MSCCL++-compatible overloads.
  /// The negation of tryRead(): true if the payload has not arrived.
  MSCCLPP_INLINE bool readOnce(std::uint32_t expected, Payload& payload) const { return !tryRead(expected, payload); }
  /// Waits for the payload with this flag and returns it. Traps on timeout (TrappingWait).
  MSCCLPP_INLINE Payload read(std::uint32_t expected, std::int64_t maxSpinCount = 1000000) const {
    return detail::readPacket(*this, expected, maxSpinCount);
  }

  /// Clears the slot.
  MSCCLPP_INLINE void clear() {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<std::uint64_t*>(this), std::uint64_t{0});
  }
};
static_assert(sizeof(LL8Packet) == 8 && Packet<LL8Packet>);

}  // namespace mscclpp
