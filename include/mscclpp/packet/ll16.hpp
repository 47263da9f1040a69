// LL16 packet (NCCL's LL protocol under MSCCL++'s name): 8 bytes of data and two 4-byte flags in 16 bytes.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <vector_types.h>
#endif

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A packet. Each 8-byte half has a flag, so 8-byte atomicity suffices, which is what a CPU has. Data and flag arrive
/// together, so no other synchronisation is needed. A flag must differ from every flag that the slot may still hold;
/// slots are zero-initialised, and flag 0 is never used. Calls are made by one thread; accesses are relaxed at system
/// scope.
union alignas(16) LL16Packet {
  using Payload = uint2;

  MSCCLPP_EXTENSION struct {
    std::uint32_t data1;
    std::uint32_t flag1;
    std::uint32_t data2;
    std::uint32_t flag2;
  };
  ulonglong2 raw_;  ///< the same 16 bytes

  LL16Packet() = default;
  MSCCLPP_INLINE LL16Packet(Payload payload, std::uint32_t flag) {
    data1 = payload.x;
    flag1 = flag;
    data2 = payload.y;
    flag2 = flag;
  }

  /// Sends payload with this flag, in one store on a GPU.
  MSCCLPP_INLINE void write(Payload payload, std::uint32_t flag) {
    const std::uint64_t flagBits = static_cast<std::uint64_t>(flag) << 32;
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<Word128*>(this),
                                                           Word128{flagBits | payload.x, flagBits | payload.y});
  }

  /// Returns a copy of the packet, in one load on a GPU. Its flags and data can then be read without another load.
  MSCCLPP_INLINE LL16Packet load() const {
    return arch::bitCast<LL16Packet>(
        arch::load<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<const Word128*>(this)));
  }
  /// For a loaded packet: whether both halves have this flag, and the data.
  MSCCLPP_INLINE bool hasFlag(std::uint32_t flag) const { return flag1 == flag && flag2 == flag; }
  MSCCLPP_INLINE Payload payload() const { return {data1, data2}; }

  /// Returns whether a payload with this flag has arrived and, if so, stores it in `payload`. Does not wait.
  MSCCLPP_INLINE bool tryRead(std::uint32_t flag, Payload& payload) const {
    const LL16Packet now = load();
    payload = now.payload();
    return now.hasFlag(flag);
  }

  // MSCCL++-compatible overloads.
  MSCCLPP_INLINE void write(std::uint32_t first, std::uint32_t second, std::uint32_t flag) {
    write(Payload{first, second}, flag);
  }
  /// The low half of `payload` comes first.
  MSCCLPP_INLINE void write(std::uint64_t payload, std::uint32_t flag) {
    write(Payload{static_cast<std::uint32_t>(payload), static_cast<std::uint32_t>(payload >> 32)}, flag);
  }
  /// The negation of tryRead(): true if the payload has not arrived.
  MSCCLPP_INLINE bool readOnce(std::uint32_t flag, Payload& payload) const { return !tryRead(flag, payload); }
  /// Waits for the payload with this flag and returns it. Traps on timeout (TrappingWait).
  MSCCLPP_INLINE Payload read(std::uint32_t flag, std::int64_t maxSpinCount = 100000000) const {
    return detail::readPacket(*this, flag, maxSpinCount);
  }

  /// Clears the slot.
  MSCCLPP_INLINE void clear() {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<Word128*>(this), Word128{0, 0});
  }
};
static_assert(sizeof(LL16Packet) == 16 && Packet<LL16Packet>);

}  // namespace mscclpp
