// The barrier object in shared memory that counts arrivals and the bytes of asynchronous copies (PTX mbarrier; sm_90 and newer).
//
// A phase of the barrier ends when every expected arrival has come and as many bytes have landed as were expected; the next one begins at once. Phases
// alternate between parity 0 and 1, from 0. At most 2^20 - 1 arrivals and bytes a phase.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/trap.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if !defined(__CUDA_ARCH__)
namespace twin {

/// The barrier's word on a CPU: arrivals still expected in this phase, arrivals of each phase, bytes still expected, parity.
struct BarrierWord {
  std::uint32_t pending;
  std::uint32_t arrivals;
  std::int32_t bytes;  ///< below zero where bytes have landed before they were expected
  std::uint32_t parity;

  static constexpr std::uint32_t limit = (1u << 20) - 1;
  static constexpr std::int32_t bias = 1 << 20;

  MSCCLPP_INLINE static BarrierWord unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word) & limit, static_cast<std::uint32_t>(word >> 20) & limit,
            static_cast<std::int32_t>(word >> 40 & 0x1fffff) - bias, static_cast<std::uint32_t>(word >> 63)};
  }
  MSCCLPP_INLINE std::uint64_t pack() const {
    return pending | static_cast<std::uint64_t>(arrivals) << 20 | static_cast<std::uint64_t>(bytes + bias) << 40 |
           static_cast<std::uint64_t>(parity) << 63;
  }
};

/// Takes arrivals and expects or lands bytes, in one step; ends the phase if that was all of it. Release. Beyond the limits it traps: the hardware's
/// barrier would be of no more use either.
MSCCLPP_INLINE void updateBarrier(std::uint64_t* barrier, std::uint32_t arrived, std::int64_t bytes) {
  constexpr std::int64_t limit = BarrierWord::limit;
  std::uint64_t before = load<Order::Relaxed, Scope::Device>(barrier);
  for (;;) {
    BarrierWord word = BarrierWord::unpack(before);
    const std::int64_t due = word.bytes + bytes;
    if (arrived > word.pending || due > limit || due < -limit) trap();
    word.pending -= arrived;
    word.bytes = static_cast<std::int32_t>(due);
    if (word.pending == 0 && word.bytes == 0) {
      word.pending = word.arrivals;
      word.parity ^= 1;
    }
    const std::uint64_t seen = compareExchange<Order::AcqRel, Scope::Device>(barrier, before, word.pack());
    if (seen == before) return;
    before = seen;
  }
}

}  // namespace twin
#endif

/// Makes a barrier of 8 bytes of shared memory. Called by one thread; mbarrierInitFence and a sync of the group come before others use it.
MSCCLPP_INLINE void mbarrierInit(std::uint64_t* barrier, std::uint32_t arrivals) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ptx::sharedAddress(barrier)), "r"(arrivals) : "memory");
#else
  if (arrivals == 0 || arrivals > twin::BarrierWord::limit) trap();
  store<Order::Relaxed, Scope::Device>(barrier, twin::BarrierWord{arrivals, arrivals, 0, 0}.pack());
#endif
}

/// Orders the making of barriers before copies of the calling thread that name them.
MSCCLPP_INLINE void mbarrierInitFence() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// Gives the memory back for other use. Nobody may be waiting.
MSCCLPP_INLINE void mbarrierInvalidate([[maybe_unused]] std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(ptx::sharedAddress(barrier)) : "memory");
#endif
}

/// The present phase ends only after `bytes` more have landed. Orders nothing.
MSCCLPP_INLINE void mbarrierExpect(std::uint64_t* barrier, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(ptx::sharedAddress(barrier)), "r"(bytes)
               : "memory");
#else
  twin::updateBarrier(barrier, 0, bytes);
#endif
}

/// Counts the calling thread in. Release, towards those who see the phase end.
MSCCLPP_INLINE void mbarrierArrive(std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(ptx::sharedAddress(barrier)) : "memory");
#else
  twin::updateBarrier(barrier, 1, 0);
#endif
}

/// Both at once.
MSCCLPP_INLINE void mbarrierArriveExpect(std::uint64_t* barrier, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(ptx::sharedAddress(barrier)),
               "r"(bytes)
               : "memory");
#else
  twin::updateBarrier(barrier, 1, bytes);
#endif
}

/// Whether the phase of this parity has ended. Acquire. A GPU thread may sleep in it for about a microsecond.
MSCCLPP_INLINE bool mbarrierTest(const std::uint64_t* barrier, std::uint32_t parity) {
#if defined(__CUDA_ARCH__)
  constexpr std::uint32_t nap =
      1000;  // nanoseconds: short, since the wait policy counts attempts between two looks at its deadline
  std::uint32_t ended;
  asm volatile(
      "{ .reg .pred done; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2, %3; selp.u32 %0, 1, 0, "
      "done; }"
      : "=r"(ended)
      : "r"(ptx::sharedAddress(barrier)), "r"(parity), "r"(nap)
      : "memory");
  return ended != 0;
#else
  return twin::BarrierWord::unpack(load<Order::Acquire, Scope::Device>(barrier)).parity != parity;
#endif
}

}  // namespace mscclpp::arch
