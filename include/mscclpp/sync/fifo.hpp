// FIFO from device code to the host, device side: many threads push triggers, one host thread pops them. The owner is
// in host/proxy/fifo.hpp.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/flagged_word.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/trigger.hpp"

namespace mscclpp {

/// Which writes a push releases, that is makes visible to the handler of the trigger: those of the pushing thread, and
/// those that a group sync ordered before the push.
enum class ReleaseScope {
  /// none: the data was written before the kernel started, or there is none. Takes half the time of a releasing push
  None,
  /// writes to this GPU's own memory, for copy engines and network cards, which read at the GPU's L2 cache
  /// (docs/memory_model.md)
  Device,
  System,  ///< all writes
};

/// Returned by a push that timed out or was aborted because the FIFO stayed full: nothing was pushed, and the FIFO can
/// no longer be used.
inline constexpr std::uint64_t invalidTriggerPosition = ~std::uint64_t{0};

/// Device view of a FIFO. A push takes a ticket, waits until the slot is free, and stores the trigger in words of 16
/// bytes. The highest bit of each word is a phase bit, which alternates with every wrap-around of the ring and tells
/// the host which words are new. So slots are never cleared, and a trigger may be all zeros.
template <TriggerLayout Trigger>
struct BasicFifoHandle {
  Trigger* triggers;          ///< the slots: host memory, mapped for the device
  std::uint64_t* head;        ///< device memory: number of tickets taken
  const std::uint64_t* tail;  ///< host memory: number of triggers popped
  std::uint64_t* tailCache;   ///< device memory: an earlier value of *tail, which spares a push the read of host memory
  int size;                   ///< slots; a power of two
  int sizeMask;               ///< size - 1
  int sizeShift;              ///< log2(size)
  WaitControl* waitControl;   ///< for the record of a failed wait; may be null
  std::uint64_t waitTimeout;  ///< nanoseconds; 0: none
  std::int32_t rank;          ///< for records only

  /// Pushes a trigger. Called by one thread; any number of threads can push at once. Returns the trigger's position,
  /// counted from 0 over the lifetime of the FIFO, or invalidTriggerPosition.
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE std::uint64_t push(const Trigger& trigger) const {
    const std::uint64_t position = reserveSlots<releaseScope>(1);
    if (!isSlotFree(position) && !waitForSlot(*this, position)) return invalidTriggerPosition;
    put<releaseScope>(position, trigger);
    return position;
  }
  /// The same with the caller's wait policy.
  template <ReleaseScope releaseScope = ReleaseScope::System, WaitPolicy Wait>
  MSCCLPP_INLINE std::uint64_t push(const Trigger& trigger, Wait& policy) const {
    const std::uint64_t position = reserveSlots<releaseScope>(1);
    if (!isSlotFree(position) && !waitUntilFree(ThisThread{}, position, policy)) return invalidTriggerPosition;
    put<releaseScope>(position, trigger);
    return position;
  }
  /// MSCCL++-compatible overload: a negative count means no timeout, any other the handle's.
  MSCCLPP_INLINE std::uint64_t push(const Trigger& trigger, std::int64_t maxSpinCount) const {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return push(trigger, policy);
  }
  /// Pushes a trigger per lane, with one atomic operation for all tickets and one store instruction per word. Called by
  /// all lanes of a warp. Returns the position of the lane's trigger. If the FIFO has fewer slots than the warp has
  /// lanes, it fails at once, with a record of WaitOperation::FifoTooSmall.
  template <ReleaseScope releaseScope = ReleaseScope::System, WarpGroup Warp>
  MSCCLPP_INLINE std::uint64_t push(const Warp& warp, const Trigger& trigger) const {
    constexpr int width = Warp::width;
    const int lane = warp.rank();
    // Orders the writes of all lanes before lane 0's release.
    if constexpr (releaseScope == ReleaseScope::Device) warp.sync();
    std::uint64_t first = lane == 0 ? reserveSlots<releaseScope>(width) : 0;
    const std::uint32_t low = warp.shuffle(static_cast<std::uint32_t>(first), 0);
    const std::uint32_t high = warp.shuffle(static_cast<std::uint32_t>(first >> 32), 0);
    first = std::uint64_t{high} << 32 | low;
    // Lanes may read different values of the cached tail, so they vote.
    if (!warp.all(isSlotFree(first + width - 1))) {
      // With fewer slots than lanes the wait cannot succeed: time out at once, with a record that says why.
      const bool canFit = size >= width;
      BoundedWait policy(waitControl, canFit ? waitTimeout : 1);
      const auto operation = canFit ? WaitOperation::Fifo : WaitOperation::FifoTooSmall;
      if (!waitUntilFree(warp, first + width - 1, policy, operation)) return invalidTriggerPosition;
    }
    const std::uint64_t position = first + static_cast<std::uint64_t>(lane);
    put<releaseScope>(position, trigger);
    return position;
  }

  /// Whether the trigger at this position has been popped. Acquire. Reads host memory. Called by one thread.
  MSCCLPP_INLINE bool poll(std::uint64_t position) const {
    return arch::load<arch::Order::Acquire, arch::Scope::System>(tail) > position;
  }
  /// Waits until the trigger at this position has been popped. Acquire: what the host wrote before the pop is visible
  /// afterwards. Called by one thread. Returns false if the wait failed, or position is invalidTriggerPosition.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool sync(std::uint64_t position, Wait& policy) const {
    if (position == invalidTriggerPosition) return false;
    return policy.until(site(position + 1), [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(tail);
      return seen > position;
    });
  }
  MSCCLPP_INLINE bool sync(std::uint64_t position) const {
    BoundedWait policy(waitControl, waitTimeout);
    return sync(position, policy);
  }
  MSCCLPP_INLINE bool sync(std::uint64_t position, std::int64_t maxSpinCount) const {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return sync(position, policy);
  }

 private:
  MSCCLPP_INLINE WaitSite site(std::uint64_t expected, WaitOperation operation = WaitOperation::Fifo) const {
    return {operation, rank, -1, 0, expected};
  }

  /// ReleaseScope::Device releases here: the store of the trigger, to host memory, could only release at system scope.
  template <ReleaseScope releaseScope>
  MSCCLPP_INLINE std::uint64_t reserveSlots(int count) const {
    constexpr arch::Order order = releaseScope == ReleaseScope::Device ? arch::Order::Release : arch::Order::Relaxed;
    return arch::fetchAdd<order, arch::Scope::Device>(head, static_cast<std::uint64_t>(count));
  }

  MSCCLPP_INLINE std::uint64_t slots() const { return static_cast<std::uint64_t>(size); }

  /// Whether, by the cached tail, the previous trigger in the slot of this position has been popped.
  MSCCLPP_INLINE bool isSlotFree(std::uint64_t position) const {
    return position - arch::load<arch::Order::Relaxed, arch::Scope::Device>(tailCache) < slots();
  }

  template <class Group, class Wait>
  MSCCLPP_INLINE bool waitUntilFree(const Group& group, std::uint64_t position, Wait& policy,
                                    WaitOperation operation = WaitOperation::Fifo) const {
    // Reads of host memory must not saturate the bus: only the nearest waiters poll the tail. The others poll the
    // cached tail, and the tail itself once in attemptsPerTailRead attempts.
    constexpr std::uint64_t eagerPollers = 64;
    constexpr unsigned attemptsPerTailRead = 64;
    unsigned attempts = 0;
    return policy.untilCollective(group, site(position + 1 - slots(), operation), [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Relaxed, arch::Scope::Device>(tailCache);
      if (position - seen >= slots() &&
          (position - seen < slots() + eagerPollers || ++attempts % attemptsPerTailRead == 0)) {
        const std::uint64_t cached = seen;
        seen = arch::load<arch::Order::Acquire, arch::Scope::System>(tail);
        if (seen > cached) arch::store<arch::Order::Relaxed, arch::Scope::Device>(tailCache, seen);
      }
      return group.all(position - seen < slots());
    });
  }

  /// Out of line, with the handle by value: a full FIFO is rare, and must cost a push neither registers nor local
  /// memory.
  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE bool waitForSlot(BasicFifoHandle fifo, std::uint64_t position) {
    BoundedWait policy(fifo.waitControl, fifo.waitTimeout);
    return fifo.waitUntilFree(ThisThread{}, position, policy);
  }

  template <ReleaseScope releaseScope>
  MSCCLPP_INLINE void put(std::uint64_t position, const Trigger& trigger) const {
    auto* slot = reinterpret_cast<Word128*>(triggers + (position & static_cast<std::uint64_t>(sizeMask)));
    const std::uint64_t phaseBit = (position >> sizeShift & 1) == 0 ? triggerPhaseBit : 0;
    MSCCLPP_UNROLL
    for (int i = 0; i < Trigger::words; ++i) {
      const Word128 word = trigger.word(i);
      const Word128 tagged{word.lo, (word.hi & ~triggerPhaseBit) | phaseBit};
      // The host acquires every word, the first one included, so releasing the first suffices.
      if (i == 0 && releaseScope == ReleaseScope::System) {
        arch::storeFlagged<arch::Order::Release>(slot, tagged);
      } else {
        arch::storeFlagged<arch::Order::Relaxed>(slot + i, tagged);
      }
    }
  }
};

using FifoHandle = BasicFifoHandle<ProxyTrigger>;
using WideFifoHandle = BasicFifoHandle<WideTrigger>;

}  // namespace mscclpp
