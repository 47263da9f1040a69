// The FIFO from device code to the host: its owner and the host side. The device side is sync/fifo.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/arch/flagged_word.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/sync/fifo.hpp"

namespace mscclpp {

class WaitMonitor;

/// Default number of slots.
inline constexpr int DEFAULT_FIFO_SIZE = 512;

struct FifoOptions {
  /// Number of slots: a power of two. Warps can push only if there is a slot for each lane.
  int size = DEFAULT_FIFO_SIZE;
  /// Which device pushes. The slots are in host memory either way.
  Device device = DeviceType::GPU;
  /// The tail is published to the device after this many pops, or at once if the FIFO is empty. More than 1 suits
  /// a host that never waits for the device between two pops.
  int popsPerTailUpdate = 1;
  /// Reports and aborts the waits of pushing threads; may be null. MSCCLPP_WAIT_TIMEOUT bounds the waits in any case.
  std::shared_ptr<WaitMonitor> monitor = nullptr;
};

namespace detail {

/// The memory of a FIFO, independent of the trigger type.
class FifoMemory {
 public:
  FifoMemory(const FifoOptions& options, std::size_t slotBytes);

  void* slots() const noexcept { return slots_.get(); }
  std::uint64_t* tail() const noexcept { return tail_; }
  std::uint64_t* head() const noexcept { return counters_.get(); }
  std::uint64_t* tailCache() const noexcept { return counters_.get() + 16; }  // on its own cache line
  WaitControl* waitControl() const noexcept;
  std::uint64_t waitTimeout() const noexcept { return waitTimeout_; }

 private:
  std::shared_ptr<void> slots_;
  std::uint64_t* tail_;  // after the slots
  std::shared_ptr<std::uint64_t> counters_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::uint64_t waitTimeout_;
};

}  // namespace detail

/// Any number of device threads push; one host thread at a time polls and pops. No device handle may be in use when it
/// is destroyed.
template <TriggerLayout Trigger>
class BasicFifo {
 public:
  using DeviceHandle = BasicFifoHandle<Trigger>;

  /// Throws Error(InvalidUsage) unless options.size is a power of two.
  explicit BasicFifo(const FifoOptions& options)
      : memory_(options, sizeof(Trigger)), size_(options.size), popsPerTailUpdate_(options.popsPerTailUpdate) {}
  explicit BasicFifo(int size = DEFAULT_FIFO_SIZE, Device device = DeviceType::GPU)
      : BasicFifo(FifoOptions{.size = size, .device = device}) {}

  /// If there is a trigger, copies it out and returns true; it stays in the FIFO until pop. Never blocks. What the
  /// device wrote before the push is visible afterwards.
  bool poll(Trigger& trigger) {
    const auto* slot = reinterpret_cast<const Word128*>(triggers() + (tail_ & (size_ - 1)));
    const std::uint64_t phaseBit = (tail_ & size_) == 0 ? triggerPhaseBit : 0;
    Word128 words[Trigger::words];
    for (int i = 0; i < Trigger::words; ++i) {
      words[i] = arch::loadFlagged(slot + i);
      if ((words[i].hi & triggerPhaseBit) != phaseBit) {
        updateTail();
        return false;
      }
    }
    trigger = Trigger::fromWords(words);
    return true;
  }

  /// Frees the slot of the trigger that poll returned.
  void pop() {
    ++tail_;
    if (tail_ - publishedTail_ >= popsPerTailUpdate_) updateTail();
  }

  /// Publishes the tail to the device now. poll does so when it finds no trigger.
  void updateTail() {
    if (publishedTail_ == tail_) return;
    arch::store<arch::Order::Release, arch::Scope::System>(memory_.tail(), tail_);
    publishedTail_ = tail_;
  }

  [[deprecated("poll and pop report by themselves")]] void flushTail(bool /*sync*/ = false) { updateTail(); }

  /// Number of triggers popped so far: the position of the one that poll returns next.
  std::uint64_t tail() const noexcept { return tail_; }
  int size() const noexcept { return static_cast<int>(size_); }

  DeviceHandle deviceHandle() const {
    DeviceHandle handle{};
    handle.triggers = triggers();
    handle.head = memory_.head();
    handle.tail = memory_.tail();
    handle.tailCache = memory_.tailCache();
    handle.size = size();
    handle.sizeMask = size() - 1;
    handle.sizeShift = std::countr_zero(size_);
    handle.waitControl = memory_.waitControl();
    handle.waitTimeout = memory_.waitTimeout();
    handle.rank = -1;
    return handle;
  }

 private:
  Trigger* triggers() const noexcept { return static_cast<Trigger*>(memory_.slots()); }

  detail::FifoMemory memory_;
  std::uint64_t size_;
  std::uint64_t popsPerTailUpdate_;
  std::uint64_t tail_ = 0;
  std::uint64_t publishedTail_ = 0;
};

using Fifo = BasicFifo<ProxyTrigger>;
using WideFifo = BasicFifo<WideTrigger>;

}  // namespace mscclpp
