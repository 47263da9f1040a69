// Port channel: device threads push requests to a proxy on the host, and copy engines or network cards write the peer's
// memory.
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

/// Data and synchronisation between memories that each call names by their ids in the proxy service. Offsets and sizes
/// are in bytes.
///
/// Each call is made by one thread. Any number of threads can call at once, but only one at a time wait() or poll().
/// Requests take effect at the peer in the order in which they were pushed; a signal arrives after the data of all
/// earlier puts. The source of a put must have been written before, by this thread or ordered by a group sync, and must
/// not change until a flush(). `releaseScope` says which of these writes the request releases: see sync/fifo.hpp.
///
/// Functions that push return false if the push timed out or was aborted because the FIFO stayed full; flush() and
/// wait() also if what they wait for did not happen. The proxy checks ids, offsets and sizes: on an error it stops, the
/// waits of this rank fail, and the proxy's owner gets the error.
template <PortTriggerLayout Trigger>
struct BasicBasePortChannelHandle {
  SemaphoreId semaphoreId_;
  Host2DeviceSemaphoreHandle semaphore_;
  BasicFifoHandle<Trigger> fifo_;
  /// The FIFO position up to which this channel's requests have completed; null: they complete when they are popped.
  const std::uint64_t* flushDonePos_;

  BasicBasePortChannelHandle() = default;
  MSCCLPP_INLINE BasicBasePortChannelHandle(SemaphoreId semaphoreId, Host2DeviceSemaphoreHandle semaphore,
                                            BasicFifoHandle<Trigger> fifo, const std::uint64_t* flushDonePos = nullptr)
      : semaphoreId_(semaphoreId), semaphore_(semaphore), fifo_(fifo), flushDonePos_(flushDonePos) {}

  /// Requests a copy of `size` bytes to the peer.
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool put(MemoryId dst, std::uint64_t dstOffset, MemoryId src, std::uint64_t srcOffset,
                          std::uint64_t size) const {
    return request<releaseScope>(TriggerData, dst, dstOffset, src, srcOffset, size);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool put(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size) const {
    return put<releaseScope>(dst, offset, src, offset, size);
  }

  /// Requests a signal to the peer, after the data of all earlier puts.
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool signal() const {
    return request<releaseScope>(TriggerFlag, 0, 0, 0, 0, 0);
  }

  /// put() and signal() as one request.
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignal(MemoryId dst, std::uint64_t dstOffset, MemoryId src, std::uint64_t srcOffset,
                                    std::uint64_t size) const {
    return request<releaseScope>(TriggerData | TriggerFlag, dst, dstOffset, src, srcOffset, size);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignal(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size) const {
    return putWithSignal<releaseScope>(dst, offset, src, offset, size);
  }

  /// put(), signal() and flush() as one request.
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                            std::uint64_t srcOffset, std::uint64_t size) const {
    return waitFlush(push<releaseScope>(TriggerData | TriggerFlag | TriggerSync, dst, dstOffset, src, srcOffset, size));
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, MemoryId src, std::uint64_t offset,
                                            std::uint64_t size) const {
    return putWithSignalAndFlush<releaseScope>(dst, offset, src, offset, size);
  }

  /// Waits until all earlier requests of this channel have completed, so that their sources may be overwritten. Does
  /// not delay other channels.
  MSCCLPP_INLINE bool flush() const { return waitFlush(push<ReleaseScope::None>(TriggerSync, 0, 0, 0, 0, 0)); }

  /// The second half of a flush: waits until the request at `position` of the FIFO, and all earlier ones of this
  /// channel, have completed.
  MSCCLPP_INLINE bool waitFlush(std::uint64_t position) const {
    if (flushDonePos_ == nullptr || position == invalidTriggerPosition) return fifo_.sync(position);
    BoundedWait policy(fifo_.waitControl, fifo_.waitTimeout);
    const WaitSite site{WaitOperation::Fifo, fifo_.rank, semaphore_.peer, 0, position + 1};
    return policy.until(site, [&](std::uint64_t& seen) {
      seen = arch::load<arch::Order::Acquire, arch::Scope::System>(flushDonePos_);
      return seen > position;
    });
  }

  // MSCCL++-compatible overloads: a negative count means no timeout, any other the handle's.
  MSCCLPP_INLINE bool waitFlush(std::uint64_t position, std::int64_t maxSpinCount) const {
    return withoutTimeoutIfNegative(maxSpinCount).waitFlush(position);
  }
  MSCCLPP_INLINE bool flush(std::int64_t maxSpinCount) const { return withoutTimeoutIfNegative(maxSpinCount).flush(); }
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) const { return semaphore_.wait(maxSpinCount); }
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                            std::uint64_t srcOffset, std::uint64_t size,
                                            std::int64_t maxSpinCount) const {
    return withoutTimeoutIfNegative(maxSpinCount).putWithSignalAndFlush(dst, dstOffset, src, srcOffset, size);
  }
  template <detail::SameAs<std::int64_t> SpinCount>
  MSCCLPP_INLINE bool putWithSignalAndFlush(MemoryId dst, MemoryId src, std::uint64_t offset, std::uint64_t size,
                                            SpinCount maxSpinCount) const {
    return putWithSignalAndFlush(dst, offset, src, offset, size, maxSpinCount);
  }

  /// put() by each lane of a warp, with its own arguments, and one atomic operation for all. Called by all lanes.
  template <ReleaseScope releaseScope = ReleaseScope::System, WarpGroup Warp>
  MSCCLPP_INLINE bool putPerLane(const Warp& warp, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                 std::uint64_t srcOffset, std::uint64_t size) const {
    const PortRequest request{TriggerData, dst, dstOffset, src, srcOffset, size, semaphoreId_};
    return fifo_.template push<releaseScope>(warp, Trigger::make(request)) != invalidTriggerPosition;
  }

  /// Consumes a signal of the peer if there is one, and returns whether there was. Acquire: what the peer put before is
  /// then visible. Does not wait.
  MSCCLPP_INLINE bool poll() const { return semaphore_.poll(); }
  /// Waits for the peer's next signal and consumes it. Acquire: what the peer put before is visible afterwards.
  MSCCLPP_INLINE bool wait() const { return semaphore_.wait(); }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) const {
    return semaphore_.wait(policy);
  }

 private:
  MSCCLPP_INLINE BasicBasePortChannelHandle withoutTimeoutIfNegative(std::int64_t maxSpinCount) const {
    BasicBasePortChannelHandle result = *this;
    if (maxSpinCount < 0) result.fifo_.waitTimeout = 0;
    return result;
  }
  template <ReleaseScope releaseScope>
  MSCCLPP_INLINE std::uint64_t push(TriggerType type, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                                    std::uint64_t srcOffset, std::uint64_t size) const {
    const PortRequest request{type, dst, dstOffset, src, srcOffset, size, semaphoreId_};
    return fifo_.template push<releaseScope>(Trigger::make(request));
  }
  template <ReleaseScope releaseScope>
  MSCCLPP_INLINE bool request(TriggerType type, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                              std::uint64_t srcOffset, std::uint64_t size) const {
    return push<releaseScope>(type, dst, dstOffset, src, srcOffset, size) != invalidTriggerPosition;
  }
};

/// The same between one memory of this rank and one of the peer.
///
/// A put of 8 bytes at offsets that are multiples of 8 is read by the calling thread and sent within the request, if
/// the transport can write values: this avoids the start of a copy engine, and has the same effect.
template <PortTriggerLayout Trigger>
struct BasicPortChannelHandle : BasicBasePortChannelHandle<Trigger> {
  MemoryId dst_;
  MemoryId src_;
  const std::byte* srcData_;  ///< the source memory, of which the device can read srcBytes_ bytes
  std::uint64_t srcBytes_;    ///< a multiple of 8; 0 if the transport cannot write values

  using Base = BasicBasePortChannelHandle<Trigger>;
  using Base::put;
  using Base::putWithSignal;

  BasicPortChannelHandle() = default;
  MSCCLPP_INLINE BasicPortChannelHandle(const Base& base, MemoryId dst, MemoryId src,
                                        const std::byte* srcData = nullptr, std::uint64_t srcBytes = 0)
      : Base(base), dst_(dst), src_(src), srcData_(srcData), srcBytes_(srcBytes) {}
  /// MSCCL++-compatible overload.
  MSCCLPP_INLINE BasicPortChannelHandle(SemaphoreId semaphoreId, Host2DeviceSemaphoreHandle semaphore,
                                        BasicFifoHandle<Trigger> fifo, MemoryId dst, MemoryId src,
                                        const std::uint64_t* flushDonePos = nullptr)
      : BasicPortChannelHandle(Base(semaphoreId, semaphore, fifo, flushDonePos), dst, src) {}

  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool put(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) const {
    return request<releaseScope>(0, dstOffset, srcOffset, size);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool put(std::uint64_t offset, std::uint64_t size) const {
    return put<releaseScope>(offset, offset, size);
  }
  /// The same with the caller's wait policy, for a FIFO that stays full.
  template <ReleaseScope releaseScope = ReleaseScope::System, WaitPolicy Wait>
  MSCCLPP_INLINE bool put(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size, Wait& policy) const {
    const Trigger trigger = makeTrigger(0, dstOffset, srcOffset, size);
    return this->fifo_.template push<releaseScope>(trigger, policy) != invalidTriggerPosition;
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignal(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) const {
    return request<releaseScope>(TriggerFlag, dstOffset, srcOffset, size);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignal(std::uint64_t offset, std::uint64_t size) const {
    return putWithSignal<releaseScope>(offset, offset, size);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t dstOffset, std::uint64_t srcOffset,
                                            std::uint64_t size) const {
    return Base::template putWithSignalAndFlush<releaseScope>(dst_, dstOffset, src_, srcOffset, size);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System>
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t offset, std::uint64_t size) const {
    return putWithSignalAndFlush<releaseScope>(offset, offset, size);
  }
  /// MSCCL++-compatible overloads. A third argument of type std::int64_t is a maxSpinCount, of any other type a size.
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size,
                                            std::int64_t maxSpinCount) const {
    return Base::putWithSignalAndFlush(dst_, dstOffset, src_, srcOffset, size, maxSpinCount);
  }
  template <detail::SameAs<std::int64_t> SpinCount>
  MSCCLPP_INLINE bool putWithSignalAndFlush(std::uint64_t offset, std::uint64_t size, SpinCount maxSpinCount) const {
    return putWithSignalAndFlush(offset, offset, size, maxSpinCount);
  }
  template <ReleaseScope releaseScope = ReleaseScope::System, WarpGroup Warp>
  MSCCLPP_INLINE bool putPerLane(const Warp& warp, std::uint64_t dstOffset, std::uint64_t srcOffset,
                                 std::uint64_t size) const {
    return Base::template putPerLane<releaseScope>(warp, dst_, dstOffset, src_, srcOffset, size);
  }

 private:
  template <ReleaseScope releaseScope>
  MSCCLPP_INLINE bool request(TriggerType more, std::uint64_t dstOffset, std::uint64_t srcOffset,
                              std::uint64_t size) const {
    const Trigger trigger = makeTrigger(more, dstOffset, srcOffset, size);
    return this->fifo_.template push<releaseScope>(trigger) != invalidTriggerPosition;
  }
  MSCCLPP_INLINE Trigger makeTrigger(TriggerType more, std::uint64_t dstOffset, std::uint64_t srcOffset,
                                     std::uint64_t size) const {
    PortRequest request{TriggerData | more, dst_, dstOffset, src_, srcOffset, size, this->semaphoreId_};
    if (size == sizeof(std::uint64_t) && (dstOffset | srcOffset) % sizeof(std::uint64_t) == 0 &&
        srcOffset < srcBytes_) {
      const auto value = arch::loadPlain<std::uint64_t>(srcData_ + srcOffset);
      request = {TriggerValue | more, dst_, dstOffset, 0, 0, value, this->semaphoreId_};
    }
    return Trigger::make(request);
  }
};

using BasePortChannelHandle = BasicBasePortChannelHandle<ProxyTrigger>;
using PortChannelHandle = BasicPortChannelHandle<ProxyTrigger>;
using WideBasePortChannelHandle = BasicBasePortChannelHandle<WideTrigger>;
using WidePortChannelHandle = BasicPortChannelHandle<WideTrigger>;

static_assert(Channel<BasePortChannelHandle> && Channel<WideBasePortChannelHandle>);
static_assert(AsynchronousChannel<PortChannelHandle> && AsynchronousChannel<WidePortChannelHandle>);

}  // namespace mscclpp
