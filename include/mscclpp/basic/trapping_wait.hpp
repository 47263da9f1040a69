// Waits without an error channel, which trap when they time out: for MSCCL++-compatible calls without a handle.
#pragma once

#include "mscclpp/arch/trap.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Waits for at most `limit`, then traps: the kernel is terminated and the next CUDA call fails. Use BoundedWait, which
/// reports the cause, where a WaitControl is available.
class TrappingWait {
 public:
  /// The timeout in nanoseconds for a maxSpinCount of 0 or more; a negative count means no timeout. The count itself is
  /// not used: MSCCL++ counts attempts in debug builds only.
  static constexpr std::uint64_t limit = 30'000'000'000u;

  MSCCLPP_INLINE explicit TrappingWait(std::int64_t maxSpinCount = 0)
      : TrappingWait(within(maxSpinCount < 0 ? 0 : limit)) {}
  /// A policy with another timeout in nanoseconds; 0: none.
  static MSCCLPP_INLINE TrappingWait within(std::uint64_t nanoseconds) {
    return TrappingWait(BoundedWait(nullptr, nanoseconds));
  }

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, Attempt&& attempt) {
    if (!wait_.until(site, attempt)) arch::trap();
    return true;
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilCollective(const Warp& warp, const WaitSite& site, Attempt&& attempt) {
    if (!wait_.untilCollective(warp, site, attempt)) arch::trap();
    return true;
  }

 private:
  MSCCLPP_INLINE explicit TrappingWait(const BoundedWait& wait) : wait_(wait) {}

  BoundedWait wait_;
};
static_assert(WaitPolicy<TrappingWait>);

namespace detail {

/// Waits for the payload of a packet with this flag and returns it. Called by one thread.
template <class PacketType>
MSCCLPP_INLINE auto readPacket(const PacketType& packet, std::uint32_t flag, std::int64_t maxSpinCount) {
  typename PacketType::Payload payload{};
  TrappingWait wait(maxSpinCount);
  wait.until(WaitSite{WaitOperation::Packet, -1, -1, 0, flag},
             [&](std::uint64_t&) { return packet.tryRead(flag, payload); });
  return payload;
}

}  // namespace detail
}  // namespace mscclpp
