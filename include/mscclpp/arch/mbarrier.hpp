// Barrier objects in shared memory (PTX mbarrier; sm_90 and newer).
//
// A barrier counts arrivals and the bytes of asynchronous copies. Its phase completes once all expected arrivals have
// been made and all expected bytes have been copied; the next phase begins at once. Phases alternate between parity 0
// and 1, from 0. A phase has at most 2^20 - 1 arrivals and as many bytes. Each call is made by one thread.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/shared_memory.hpp"
#include "mscclpp/arch/trap.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

#if !defined(__CUDA_ARCH__)
namespace host {

/// The barrier on a CPU: arrivals pending in this phase, arrivals of each phase, bytes pending, and parity, in 8 bytes.
struct BarrierWord {
  std::uint32_t pending;
  std::uint32_t arrivals;
  std::int32_t bytes;  ///< negative if bytes were copied before they were expected
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

/// Counts arrivals and adds to the pending bytes (negative: bytes copied), atomically; completes the phase if nothing
/// is pending any more. Release. Traps on counts beyond the limits, for which the hardware's behaviour is undefined.
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

}  // namespace host
#endif

/// Initialises a barrier, 8 bytes of shared memory, for `arrivals` arrivals per phase. Other threads may use it after
/// mbarrierInitFence() and a sync of the group.
MSCCLPP_INLINE void mbarrierInit(std::uint64_t* barrier, std::uint32_t arrivals) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ptx::sharedAddress(barrier)), "r"(arrivals) : "memory");
#else
  if (arrivals == 0 || arrivals > host::BarrierWord::limit) trap();
  store<Order::Relaxed, Scope::Device>(barrier, host::BarrierWord{arrivals, arrivals, 0, 0}.pack());
#endif
}

/// Orders the initialisation of barriers before the calling thread's later copies that signal them.
MSCCLPP_INLINE void mbarrierInitFence() {
#if defined(__CUDA_ARCH__)
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// Ends the use of the memory as a barrier. No thread may be waiting on it.
MSCCLPP_INLINE void mbarrierInvalidate([[maybe_unused]] std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(ptx::sharedAddress(barrier)) : "memory");
#endif
}

/// Adds `bytes` to the bytes that the current phase waits for. Relaxed.
MSCCLPP_INLINE void mbarrierExpect(std::uint64_t* barrier, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(ptx::sharedAddress(barrier)), "r"(bytes)
               : "memory");
#else
  host::updateBarrier(barrier, 0, bytes);
#endif
}

/// Arrives at the current phase. Release: threads that observe its completion see what the caller wrote before.
MSCCLPP_INLINE void mbarrierArrive(std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(ptx::sharedAddress(barrier)) : "memory");
#else
  host::updateBarrier(barrier, 1, 0);
#endif
}

/// mbarrierExpect() and mbarrierArrive() in one step.
MSCCLPP_INLINE void mbarrierArriveExpect(std::uint64_t* barrier, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(ptx::sharedAddress(barrier)),
               "r"(bytes)
               : "memory");
#else
  host::updateBarrier(barrier, 1, bytes);
#endif
}

/// Whether the phase of this parity has completed. Acquire. On a GPU the thread may be suspended for about 1 us.
MSCCLPP_INLINE bool mbarrierTest(const std::uint64_t* barrier, std::uint32_t parity) {
#if defined(__CUDA_ARCH__)
  constexpr std::uint32_t suspendTimeHint =
      1000;  // nanoseconds: short, since the wait policy checks its deadline once in many attempts
  std::uint32_t ended;
  asm volatile(
      "{ .reg .pred done; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2, %3; selp.u32 %0, 1, 0, "
      "done; }"
      : "=r"(ended)
      : "r"(ptx::sharedAddress(barrier)), "r"(parity), "r"(suspendTimeHint)
      : "memory");
  return ended != 0;
#else
  return host::BarrierWord::unpack(load<Order::Acquire, Scope::Device>(barrier)).parity != parity;
#endif
}

}  // namespace mscclpp::arch
