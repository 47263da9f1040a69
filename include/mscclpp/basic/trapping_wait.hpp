// Waits that have nobody to report to: they end the kernel when they fail. For MSCCL++'s calls that carry no handle.
#pragma once

#include "mscclpp/arch/trap.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// Waits for `limit` at most, and then ends the kernel: the next call of the CUDA runtime reports an error, and what waited for this rank sees its process
/// end. What has a WaitControl uses BoundedWait, which says what went wrong.
class TrappingWait {
 public:
  /// Nanoseconds. As MSCCL++ counts attempts in debug builds only, so is a count no more here than "some limit" (0 and more) or "none" (below 0).
  static constexpr std::uint64_t limit = 30'000'000'000u;

  MSCCLPP_INLINE explicit TrappingWait(std::int64_t maxSpinCount = 0)
      : TrappingWait(within(maxSpinCount < 0 ? 0 : limit)) {}
  /// Another limit in nanoseconds; 0: none.
  static MSCCLPP_INLINE TrappingWait within(std::uint64_t nanoseconds) {
    return TrappingWait(BoundedWait(nullptr, nanoseconds));
  }

  template <class Attempt>
  MSCCLPP_INLINE bool until(const WaitSite& site, Attempt&& attempt) {
    if (!wait_.until(site, attempt)) arch::trap();
    return true;
  }
  template <class Warp, class Attempt>
  MSCCLPP_INLINE bool untilTogether(const Warp& warp, const WaitSite& site, Attempt&& attempt) {
    if (!wait_.untilTogether(warp, site, attempt)) arch::trap();
    return true;
  }

 private:
  MSCCLPP_INLINE explicit TrappingWait(const BoundedWait& wait) : wait_(wait) {}

  BoundedWait wait_;
};
static_assert(WaitPolicy<TrappingWait>);

namespace detail {

/// Waits for the payload of one packet.
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
