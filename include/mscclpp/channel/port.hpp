// Port channel: a peer's memory that a proxy on the host writes on request. Device threads push requests; copy engines or network cards move the data.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/fifo.hpp"
#include "mscclpp/sync/host_semaphore.hpp"
#include "mscclpp/sync/trigger.hpp"

namespace mscclpp {

/// Data and synchronisation, for memories that each call names by the number that the proxy service gave them. Offsets and sizes in bytes.
///
/// Each call is made by one thread, any number of threads at once, but for wait and poll: one at a time. Requests take effect at the peer in the order of
/// their pushes; a signal comes after the data of all earlier puts. What a put reads must have been written before it (by this thread, or known to it
/// through a group sync), and stays as it is until a flush. `Publish` says which of these writes the request is to wait for: see sync/fifo.hpp.
///
/// Calls that push return false if they gave up because the FIFO stayed full, flush and wait also if what they wait for did not come. Numbers, offsets and
/// sizes are checked by the proxy: an error ends it, and with it the waits of this rank, and its owner hears of it.
template <PortTriggerLayout Trigger>
struct BasicBasePortChannelHandle {
  SemaphoreId semaphoreId_;
  Host2DeviceSemaphoreHandle semaphore_;
  BasicFifoHandle<Trigger> fifo_;
  /// How far this channel's requests in the FIFO have completed; null: as far as they have been popped.
  const std::uint64_t* flushDonePos_;

  BasicBasePortChannelHandle() = default;
  MSCCLPP_INLINE BasicBasePortChannelHandle(SemaphoreId semaphoreId, Host2DeviceSemaphoreHandle semaphore,
                                            BasicFifoHandle<Trigger> fifo, const std::uint64_t* flushDonePos = nullptr)
      : semaphoreId_(semaphoreId), semaphore_(semaphore), fifo_(fifo), flushDonePos_(flushDonePos) {}

  /// Starts to copy `size` bytes to the peer.
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool put(MemoryId dst, std::uint64_t dstOffset, MemoryId src, std::uint64_t srcOffset,
                          std::uint64_t size) {
    return request<publish>(TriggerData, dst, dstOffset, src, srcOffset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool put(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size) {
    return put<publish>(dst, offset, src, offset, size);
  }

  /// Tells the peer, after the data of all earlier puts.
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool signal() {
    return request<publish>(TriggerFlag, 0, 0, 0, 0, 0);
  }

  /// put and signal as one request: half the way through the FIFO.
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignal(MemoryId dst, std::uint64_t dstOffset, MemoryId src, std::uint64_t srcOffset,
                                    std::uint64_t size) {
    return request<publish>(TriggerData | TriggerFlag, dst, dstOffset, src, srcOffset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignal(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size) {
    return putWithSignal<publish>(dst, offset, src, offset, size);
  }

  /// put, signal, and flush, as one request.
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                            std::uint64_t srcOffset, std::uint64_t size) {
    return flushed(push<publish>(TriggerData | TriggerFlag | TriggerSync, dst, dstOffset, src, srcOffset, size));
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size) {
    return putWithSignalAndFlush<publish>(dst, offset, src, offset, size);
  }

  /// Waits until all earlier requests of this channel have completed: their sources may be written again. Other channels go on meanwhile.
  MSCCLPP_INLINE bool flush() { return flushed(push<Publish::Nothing>(TriggerSync, 0, 0, 0, 0, 0)); }

  // MSCCL++'s forms: a count below 0 means until aborted, any other the handle's own limit.
  MSCCLPP_INLINE bool flush(std::int64_t maxSpinCount) { return unlimitedIf(maxSpinCount).flush(); }
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) { return semaphore_.wait(maxSpinCount); }
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                            std::uint64_t srcOffset, std::uint64_t size, std::int64_t maxSpinCount) {
    return unlimitedIf(maxSpinCount).putWithSignalAndFlush(dst, dstOffset, src, srcOffset, size);
  }
  template <detail::SameAs<std::int64_t> SpinCount>
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size,
                                            SpinCount maxSpinCount) {
    return putWithSignalAndFlush(dst, offset, src, offset, size, maxSpinCount);
  }

  /// A put by each lane of a warp, of the lane's own piece: one ticket for all.
  template <Publish publish = Publish::System, WarpGroup Warp>
  MSCCLPP_INLINE bool putEach(const Warp& warp, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                              std::uint64_t srcOffset, std::uint64_t size) {
    const PortRequest request{TriggerData, dst, dstOffset, src, srcOffset, size, semaphoreId_};
    return fifo_.template push<publish>(warp, Trigger::make(request)) != noFifoPosition;
  }

  /// Consumes a signal of the peer if there is one; what the peer put before it is visible then. Never waits.
  MSCCLPP_INLINE bool poll() { return semaphore_.poll(); }
  /// Waits for the peer's next signal; what the peer put before it is visible afterwards.
  MSCCLPP_INLINE bool wait() { return semaphore_.wait(); }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) {
    return semaphore_.wait(policy);
  }

 private:
  MSCCLPP_INLINE BasicBasePortChannelHandle unlimitedIf(std::int64_t maxSpinCount) const {
    BasicBasePortChannelHandle result = *this;
    if (maxSpinCount < 0) result.fifo_.waitTimeout = 0;
    return result;
  }
  template <Publish publish>
  MSCCLPP_INLINE std::uint64_t push(TriggerType type, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                    std::uint64_t srcOffset, std::uint64_t size) {
    const PortRequest request{type, dst, dstOffset, src, srcOffset, size, semaphoreId_};
    return fifo_.template push<publish>(Trigger::make(request));
  }
  template <Publish publish>
  MSCCLPP_INLINE bool request(TriggerType type, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                              std::uint64_t srcOffset, std::uint64_t size) {
    return push<publish>(type, dst, dstOffset, src, srcOffset, size) != noFifoPosition;
  }
  MSCCLPP_INLINE bool flushed(std::uint64_t position) const {
    if (flushDonePos_ == nullptr || position == noFifoPosition) return fifo_.sync(position);
    BoundedWait policy(fifo_.waitControl, fifo_.waitTimeout);
    const WaitSite site{WaitOperation::Fifo, fifo_.rank, semaphore_.peer, 0, position + 1};
    return policy.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(flushDonePos_);
      return seen > position;
    });
  }
};

/// The same between one memory here and one of the peer's.
///
/// Eight bytes at offsets that are multiples of 8 are read by the calling thread and travel in the request, where the transport can make use of it: no copy
/// engine has to start. For the caller nothing changes.
template <PortTriggerLayout Trigger>
struct BasicPortChannelHandle : BasicBasePortChannelHandle<Trigger> {
  MemoryId dst_;
  MemoryId src_;
  const std::byte* srcData_;  ///< the source, of which the device may read srcBytes_ bytes
  std::uint64_t srcBytes_;    ///< whole words of 8 bytes; 0 where the transport does not write values

  using Base = BasicBasePortChannelHandle<Trigger>;
  using Base::put;
  using Base::putWithSignal;

  BasicPortChannelHandle() = default;
  MSCCLPP_INLINE BasicPortChannelHandle(const Base& base, MemoryId dst, MemoryId src,
                                        const std::byte* srcData = nullptr, std::uint64_t srcBytes = 0)
      : Base(base), dst_(dst), src_(src), srcData_(srcData), srcBytes_(srcBytes) {}
  /// MSCCL++'s form.
  MSCCLPP_INLINE BasicPortChannelHandle(SemaphoreId semaphoreId, Host2DeviceSemaphoreHandle semaphore,
                                        BasicFifoHandle<Trigger> fifo, MemoryId dst, MemoryId src,
                                        const std::uint64_t* flushDonePos = nullptr)
      : BasicPortChannelHandle(Base(semaphoreId, semaphore, fifo, flushDonePos), dst, src) {}

  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool put(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
    return request<publish>(0, dstOffset, srcOffset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool put(std::uint64_t offset, std::uint64_t size) {
    return put<publish>(offset, offset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignal(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
    return request<publish>(TriggerFlag, dstOffset, srcOffset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignal(std::uint64_t offset, std::uint64_t size) {
    return putWithSignal<publish>(offset, offset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
    return Base::template putWithSignalAndFlush<publish>(dst_, dstOffset, src_, srcOffset, size);
  }
  template <Publish publish = Publish::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t offset, std::uint64_t size) {
    return putWithSignalAndFlush<publish>(offset, offset, size);
  }
  /// MSCCL++'s forms; an std::int64_t as third argument is a count, any other a size.
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size,
                                            std::int64_t maxSpinCount) {
    return Base::putWithSignalAndFlush(dst_, dstOffset, src_, srcOffset, size, maxSpinCount);
  }
  template <detail::SameAs<std::int64_t> SpinCount>
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t offset, std::uint64_t size, SpinCount maxSpinCount) {
    return putWithSignalAndFlush(offset, offset, size, maxSpinCount);
  }
  template <Publish publish = Publish::System, WarpGroup Warp>
  MSCCLPP_INLINE bool putEach(const Warp& warp, std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
    return Base::template putEach<publish>(warp, dst_, dstOffset, src_, srcOffset, size);
  }

 private:
  template <Publish publish>
  MSCCLPP_INLINE bool request(TriggerType more, std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
    PortRequest request{TriggerData | more, dst_, dstOffset, src_, srcOffset, size, this->semaphoreId_};
    if (size == sizeof(std::uint64_t) && (dstOffset | srcOffset) % sizeof(std::uint64_t) == 0 &&
        srcOffset < srcBytes_) {
      const auto value = arch::loadPlain<std::uint64_t>(srcData_ + srcOffset);
      request = {TriggerValue | more, dst_, dstOffset, 0, 0, value, this->semaphoreId_};
    }
    return this->fifo_.template push<publish>(Trigger::make(request)) != noFifoPosition;
  }
};

using BasePortChannelHandle = BasicBasePortChannelHandle<ProxyTrigger>;
using PortChannelHandle = BasicPortChannelHandle<ProxyTrigger>;
using WideBasePortChannelHandle = BasicBasePortChannelHandle<WideTrigger>;
using WidePortChannelHandle = BasicPortChannelHandle<WideTrigger>;

}  // namespace mscclpp
