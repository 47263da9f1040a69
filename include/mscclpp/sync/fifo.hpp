// FIFO from device code to the host: many threads push triggers, one host thread takes them. The device side; the owner is host/fifo.hpp.
#pragma once

#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/marked.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/trigger.hpp"

namespace mscclpp {

/// What a push makes visible to whoever acts on the trigger: the pushing thread's earlier writes, and those it knows of through a group sync.
enum class Publish {
  Nothing,  ///< none: the data was there before the kernel started, or there is none. Half the time of a push that publishes
  Device,  ///< writes to this GPU's own memory, for copy engines and network cards, which read it where the GPU's threads do (docs/memory_model.md)
  System,  ///< all writes
};

/// What push returns when it gave up because the FIFO stayed full: nothing was pushed, and the FIFO is of no more use.
inline constexpr std::uint64_t noFifoPosition = ~std::uint64_t{0};

/// Device view. A push takes a ticket, waits until the slot is free, and stores the trigger in words of 16 bytes. The highest bit of each is the parity of
/// the lap round the slots, so the host tells a new word from that of a lap before: slots are never cleared, and a trigger may be all zeros.
template <TriggerLayout Trigger>
struct BasicFifoHandle {
  Trigger* triggers;          ///< the slots: host memory that the device can write
  std::uint64_t* head;        ///< device memory: tickets given out
  const std::uint64_t* tail;  ///< host memory: how many triggers have been popped
  std::uint64_t* tailCache;   ///< device memory: a value that *tail had, so that a push needs no look at host memory
  int size;                   ///< slots; a power of two
  int sizeMask;               ///< size - 1
  int sizeShift;              ///< log2(size)
  WaitControl* waitControl;   ///< where a failed wait reports; may be null
  std::uint64_t waitTimeout;  ///< nanoseconds; 0 waits until aborted
  std::int32_t rank;          ///< for reports only

  /// Pushes one trigger. Returns its position, counted from 0 over the FIFO's life, or noFifoPosition. Called by one thread; any number of threads at once.
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE std::uint64_t push(const Trigger& trigger) {
    const std::uint64_t position = takeTickets<publish>(1);
    if (!isFree(position) && !waitForRoom(*this, position)) return noFifoPosition;
    put<publish>(position, trigger);
    return position;
  }
  /// The same, waiting in the caller's way.
  template <Publish publish = Publish::System, WaitPolicy Wait>
  MSCCLPP_INLINE std::uint64_t push(const Trigger& trigger, Wait& policy) {
    const std::uint64_t position = takeTickets<publish>(1);
    if (!isFree(position) && !untilFree(ThisThread{}, position, policy)) return noFifoPosition;
    put<publish>(position, trigger);
    return position;
  }
  /// MSCCL++'s form: a count below 0 means that a full FIFO is waited for until aborted, any other the handle's own limit.
  MSCCLPP_INLINE std::uint64_t push(const Trigger& trigger, std::int64_t maxSpinCount) {
    BoundedWait policy(waitControl, maxSpinCount < 0 ? 0 : waitTimeout);
    return push(trigger, policy);
  }
  /// Pushes a trigger for each lane of a warp: one ticket and one store instruction a word for all of them. Called by all lanes. A FIFO of
  /// fewer slots than lanes gives up at once, with a record of WaitOperation::FifoTooSmall.
  template <Publish publish = Publish::System, WarpGroup Warp>
  MSCCLPP_INLINE std::uint64_t push(const Warp& warp, const Trigger& trigger) {
    constexpr int width = Warp::width;
    const int lane = warp.rank();
    // What the lanes wrote comes before the ticket of the one.
    if constexpr (publish == Publish::Device) warp.sync();
    std::uint64_t first = lane == 0 ? takeTickets<publish>(width) : 0;
    const std::uint32_t low = warp.shuffle(static_cast<std::uint32_t>(first), 0);
    const std::uint32_t high = warp.shuffle(static_cast<std::uint32_t>(first >> 32), 0);
    first = std::uint64_t{high} << 32 | low;
    // All lanes look at the same word and decide alike only if they vote.
    if (!warp.all(isFree(first + width - 1))) {
      // A FIFO of fewer slots never has room, and its record says so at once.
      const bool canFit = size >= width;
      BoundedWait policy(waitControl, canFit ? waitTimeout : 1);
      const auto operation = canFit ? WaitOperation::Fifo : WaitOperation::FifoTooSmall;
      if (!untilFree(warp, first + width - 1, policy, operation)) return noFifoPosition;
    }
    const std::uint64_t position = first + static_cast<std::uint64_t>(lane);
    put<publish>(position, trigger);
    return position;
  }

  /// Whether the trigger at position has been popped. Looks at host memory.
  MSCCLPP_INLINE bool poll(std::uint64_t position) const {
    return arch::load<arch::Order::Acquire, arch::Scope::System>(tail) > position;
  }
  /// Waits until it has been: what the host wrote before it popped the trigger is visible afterwards. False: the wait gave up, or position is
  /// noFifoPosition.
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool sync(std::uint64_t position, Wait& policy) const {
    if (position == noFifoPosition) return false;
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

  /// Publish::Device releases here, since no store to host memory releases for the device alone.
  template <Publish publish>
  MSCCLPP_INLINE std::uint64_t takeTickets(int count) const {
    constexpr arch::Order order = publish == Publish::Device ? arch::Order::Release : arch::Order::Relaxed;
    return arch::fetchAdd<order, arch::Scope::Device>(head, static_cast<std::uint64_t>(count));
  }

  MSCCLPP_INLINE std::uint64_t slots() const { return static_cast<std::uint64_t>(size); }

  /// Whether the cached tail shows that the slot of position has been popped a lap ago.
  MSCCLPP_INLINE bool isFree(std::uint64_t position) const {
    return position - arch::load<arch::Order::Relaxed, arch::Scope::Device>(tailCache) < slots();
  }

  template <class Group, class Wait>
  MSCCLPP_INLINE bool untilFree(const Group& group, std::uint64_t position, Wait& policy,
                                WaitOperation operation = WaitOperation::Fifo) const {
    // The bus to host memory must not drown in questions: those next in line ask, the others read the answers, and ask now and then.
    constexpr std::uint64_t frontRow = 64;
    constexpr unsigned attemptsPerQuestion = 64;
    unsigned attempts = 0;
    return policy.untilTogether(group, site(position + 1 - slots(), operation), [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Relaxed, arch::Scope::Device>(tailCache);
      if (position - seen >= slots() &&
          (position - seen < slots() + frontRow || ++attempts % attemptsPerQuestion == 0)) {
        const std::uint64_t cached = seen;
        seen = arch::load<arch::Order::Acquire, arch::Scope::System>(tail);
        if (seen > cached) arch::store<arch::Order::Relaxed, arch::Scope::Device>(tailCache, seen);
      }
      return group.all(position - seen < slots());
    });
  }

  /// Out of line, and the handle by value: a full FIFO is rare, and its code must cost the push neither registers nor memory.
  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE bool waitForRoom(BasicFifoHandle fifo, std::uint64_t position) {
    BoundedWait policy(fifo.waitControl, fifo.waitTimeout);
    return fifo.untilFree(ThisThread{}, position, policy);
  }

  template <Publish publish>
  MSCCLPP_INLINE void put(std::uint64_t position, const Trigger& trigger) const {
    auto* slot = reinterpret_cast<Word16*>(triggers + (position & static_cast<std::uint64_t>(sizeMask)));
    const std::uint64_t mark = (position >> sizeShift & 1) == 0 ? triggerMark : 0;
    MSCCLPP_UNROLL
    for (int i = 0; i < Trigger::words; ++i) {
      const Word16 word = trigger.word(i);
      const Word16 marked{word.lo, (word.hi & ~triggerMark) | mark};
      // What comes before the first store comes before the others.
      if (i == 0 && publish == Publish::System) {
        arch::storeMarked<arch::Order::Release>(slot, marked);
      } else {
        arch::storeMarked<arch::Order::Relaxed>(slot + i, marked);
      }
    }
  }
};

using FifoHandle = BasicFifoHandle<ProxyTrigger>;
using WideFifoHandle = BasicFifoHandle<WideTrigger>;

}  // namespace mscclpp
