// FIFO from device code to the host: the owner, and the host's end. The device's end is sync/fifo.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/arch/marked.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/sync/fifo.hpp"

namespace mscclpp {

class WaitMonitor;

/// Slots of a FIFO, unless one asks for another number.
inline constexpr int DEFAULT_FIFO_SIZE = 512;

struct FifoOptions {
  /// Slots: a power of two. Warps push only into FIFOs with a slot for each lane.
  int size = DEFAULT_FIFO_SIZE;
  /// Who pushes. The slots are in host memory either way.
  Device device = DeviceType::GPU;
  /// Pops between two that tell the device how far the host is; a FIFO that has run empty tells at once. More than 1 suits a host that never waits for
  /// the device between two pops.
  int popsPerReport = 1;
  /// Who reports and ends the waits of those who push; may be null. Waits are bounded by MSCCLPP_WAIT_TIMEOUT in any case.
  std::shared_ptr<WaitMonitor> monitor = nullptr;
};

namespace detail {

/// The memory of a FIFO, whatever its triggers.
class FifoMemory {
 public:
  FifoMemory(const FifoOptions& options, std::size_t slotBytes);

  void* slots() const noexcept { return slots_.get(); }
  std::uint64_t* tail() const noexcept { return tail_; }
  std::uint64_t* head() const noexcept { return counters_.get(); }
  std::uint64_t* tailCache() const noexcept { return counters_.get() + 16; }  // a cache line apart
  WaitControl* waitControl() const noexcept;
  std::uint64_t waitTimeout() const noexcept { return waitTimeout_; }

 private:
  std::shared_ptr<void> slots_;
  std::uint64_t* tail_;  // behind the slots
  std::shared_ptr<std::uint64_t> counters_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::uint64_t waitTimeout_;
};

}  // namespace detail

/// Any number of device threads push; one host thread at a time polls and pops. The device handles must not be used any more when it is destroyed.
template <TriggerLayout Trigger>
class BasicFifo {
 public:
  using DeviceHandle = BasicFifoHandle<Trigger>;

  /// Throws Error(InvalidUsage) unless options.size is a power of two.
  explicit BasicFifo(const FifoOptions& options)
      : memory_(options, sizeof(Trigger)), size_(options.size), popsPerReport_(options.popsPerReport) {}
  explicit BasicFifo(int size = DEFAULT_FIFO_SIZE, Device device = DeviceType::GPU)
      : BasicFifo(FifoOptions{.size = size, .device = device}) {}

  /// Whether there is a trigger; if so it is copied out, and stays until pop. Never waits. What the device published with it is visible afterwards.
  bool poll(Trigger& trigger) {
    const auto* slot = reinterpret_cast<const Word16*>(triggers() + (tail_ & (size_ - 1)));
    const std::uint64_t mark = (tail_ & size_) == 0 ? triggerMark : 0;
    Word16 words[Trigger::words];
    for (int i = 0; i < Trigger::words; ++i) {
      words[i] = arch::loadMarked(slot + i);
      if ((words[i].hi & triggerMark) != mark) {
        report();
        return false;
      }
    }
    trigger = Trigger::fromWords(words);
    return true;
  }

  /// Frees the slot of the trigger that poll gave.
  void pop() {
    ++tail_;
    if (tail_ - reported_ >= popsPerReport_) report();
  }

  /// Tells the device now how far the host is. poll does so when it finds nothing.
  void report() {
    if (reported_ == tail_) return;
    arch::store<arch::Order::Release, arch::Scope::System>(memory_.tail(), tail_);
    reported_ = tail_;
  }

  [[deprecated("poll and pop report by themselves")]] void flushTail(bool /*sync*/ = false) { report(); }

  /// How many triggers have been popped: the position of the one that poll gives next.
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
  std::uint64_t popsPerReport_;
  std::uint64_t tail_ = 0;
  std::uint64_t reported_ = 0;
};

using Fifo = BasicFifo<ProxyTrigger>;
using WideFifo = BasicFifo<WideTrigger>;

}  // namespace mscclpp
