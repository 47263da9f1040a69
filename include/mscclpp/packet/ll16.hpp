// LL16 packet: 8 bytes of data and two 4-byte flags in 16 bytes that a GPU stores and loads whole. (The LL protocol is NCCL's; the name is MSCCL++'s.)
#pragma once

#if !defined(__CUDACC_RTC__)
#include <vector_types.h>
#endif

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/trapping_wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Each 8-byte half carries its own flag, so that 8-byte atomicity, all that a CPU gives, is enough. A flag must differ from every flag that the slot
/// may still hold. No other synchronisation is needed: data and flag arrive together. Memory starts as zero and flag 0 is never used.
struct alignas(16) LL16Packet {
  using Payload = uint2;

  std::uint32_t data1;
  std::uint32_t flag1;
  std::uint32_t data2;
  std::uint32_t flag2;

  LL16Packet() = default;
  MSCCLPP_INLINE LL16Packet(Payload payload, std::uint32_t flag)
      : data1(payload.x), flag1(flag), data2(payload.y), flag2(flag) {}

  /// Sends payload; one store.
  MSCCLPP_INLINE void write(Payload payload, std::uint32_t flag) {
    const std::uint64_t mark = static_cast<std::uint64_t>(flag) << 32;
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<Word16*>(this),
                                                           Word16{mark | payload.x, mark | payload.y});
  }

  /// The packet as it is now; one load. Its flags and data can then be looked at without another.
  MSCCLPP_INLINE LL16Packet load() const {
    return arch::bitCast<LL16Packet>(
        arch::load<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<const Word16*>(this)));
  }
  /// Of a loaded packet: whether all of it carries this flag, and its data.
  MSCCLPP_INLINE bool carries(std::uint32_t flag) const { return flag1 == flag && flag2 == flag; }
  MSCCLPP_INLINE Payload payload() const { return {data1, data2}; }

  /// Whether the payload of this flag has arrived; if so, it is in `payload`. One load, no waiting.
  MSCCLPP_INLINE bool tryRead(std::uint32_t flag, Payload& payload) const {
    const LL16Packet now = load();
    payload = now.payload();
    return now.carries(flag);
  }

  // MSCCL++'s forms.
  MSCCLPP_INLINE void write(std::uint32_t first, std::uint32_t second, std::uint32_t flag) {
    write(Payload{first, second}, flag);
  }
  /// The reverse of tryRead: true = not there yet.
  MSCCLPP_INLINE bool readOnce(std::uint32_t flag, Payload& payload) const { return !tryRead(flag, payload); }
  /// Waits for the payload of this flag; see TrappingWait for the limit.
  MSCCLPP_INLINE Payload read(std::uint32_t flag, std::int64_t maxSpinCount = 100000000) const {
    return detail::readPacket(*this, flag, maxSpinCount);
  }

  /// Forgets what the slot holds.
  MSCCLPP_INLINE void clear() {
    arch::store<arch::Order::Relaxed, arch::Scope::System>(reinterpret_cast<Word16*>(this), Word16{0, 0});
  }
};
static_assert(sizeof(LL16Packet) == 16 && Packet<LL16Packet>);

}  // namespace mscclpp
