// Memory channel: a peer's memory, mapped here, and a semaphore. The calling threads move the data.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/copy.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/packet/copy_packets.hpp"
#include "mscclpp/packet/ll16.hpp"
#include "mscclpp/sync/semaphore.hpp"

namespace mscclpp {

/// Synchronisation only. Each call is made by one thread; SemaphoreHandle (sync/semaphore.hpp) states the ordering and
/// the errors.
struct BaseMemoryChannelHandle {
  SemaphoreHandle semaphore_;

  MSCCLPP_INLINE void signal(std::uint64_t count = 1) const { semaphore_.signal(count); }
  MSCCLPP_INLINE void relaxedSignal(std::uint64_t count = 1) const { semaphore_.relaxedSignal(count); }
  MSCCLPP_INLINE bool poll() const { return semaphore_.poll(); }
  MSCCLPP_INLINE bool wait() const { return semaphore_.wait(); }
  MSCCLPP_INLINE bool relaxedWait() const { return semaphore_.relaxedWait(); }
  MSCCLPP_INLINE bool waitAtLeast(std::uint64_t count) const { return semaphore_.waitAtLeast(count); }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool wait(Wait& policy) const {
    return semaphore_.wait(policy);
  }
  template <WaitPolicy Wait>
  MSCCLPP_INLINE bool waitAtLeast(std::uint64_t count, Wait& policy) const {
    return semaphore_.waitAtLeast(count, policy);
  }
  /// MSCCL++-compatible overloads: a negative count means no timeout, any other the handle's.
  MSCCLPP_INLINE bool wait(std::int64_t maxSpinCount) const { return semaphore_.wait(maxSpinCount); }
  MSCCLPP_INLINE bool relaxedWait(std::int64_t maxSpinCount) const { return semaphore_.relaxedWait(maxSpinCount); }
};

/// Data and synchronisation. Offsets and sizes are in bytes unless a name says otherwise.
///
/// put(), get() and the packet functions are called by every thread of a group and do not sync. The pattern: put() by
/// all threads, group.sync(), signal() by one thread; at the peer wait() by one thread, group.sync(), and then all
/// threads may read. There is no flush(): signal() orders the puts before it.
struct MemoryChannelHandle : BaseMemoryChannelHandle {
  void* dst_;           ///< the peer's memory, mapped here
  void* src_;           ///< this rank's memory
  void* packetBuffer_;  ///< this rank's memory for the peer's packets; null if none was given

  /// Loads element `index` (in units of T) of the peer's memory. Called by one thread.
  template <class T>
  MSCCLPP_INLINE T read(std::size_t index) const {
    return static_cast<const T*>(dst_)[index];
  }
  /// Stores value to element `index` (in units of T) of the peer's memory. Called by one thread.
  template <class T>
  MSCCLPP_INLINE void write(std::size_t index, const T& value) const {
    static_cast<T*>(dst_)[index] = value;
  }

  /// Copies `bytes` bytes from this rank's memory to the peer's. Any size and alignment.
  template <ThreadGroup Group>
  MSCCLPP_INLINE void put(const Group& group, std::size_t dstOffset, std::size_t srcOffset, std::size_t bytes) const {
    copy(group, at(dst_, dstOffset), at(src_, srcOffset), bytes);
  }
  /// Copies `bytes` bytes from the peer's memory to this rank's. As in put(), dstOffset is in the peer's memory and
  /// srcOffset in this rank's.
  template <ThreadGroup Group>
  MSCCLPP_INLINE void get(const Group& group, std::size_t dstOffset, std::size_t srcOffset, std::size_t bytes) const {
    copy(group, at(src_, srcOffset), at(dst_, dstOffset), bytes);
  }

  /// Sends `bytes` bytes of this rank's memory as packets to the peer's memory, where dstOffset is in bytes of packets.
  /// flag: as for copyToPackets(). Needs no signal().
  template <class PacketType = LL16Packet, ThreadGroup Group>
  MSCCLPP_INLINE void putPackets(const Group& group, std::size_t dstOffset, std::size_t srcOffset, std::size_t bytes,
                                 std::uint32_t flag) const {
    copyToPackets<PacketType>(group, at(dst_, dstOffset), at(src_, srcOffset), bytes, flag);
  }
  /// Receives `bytes` bytes from the packets in packetBuffer_, at packetOffset bytes of packets, into this rank's
  /// memory. Returns false if a wait of the calling thread failed. A negative maxSpinCount (MSCCL++'s) means no
  /// timeout.
  template <class PacketType = LL16Packet, ThreadGroup Group>
  MSCCLPP_INLINE bool unpackPackets(const Group& group, std::size_t packetOffset, std::size_t srcOffset,
                                    std::size_t bytes, std::uint32_t flag, std::int64_t maxSpinCount = 0) const {
    BoundedWait policy(semaphore_.waitControl, maxSpinCount < 0 ? 0 : semaphore_.waitTimeout);
    return copyFromPackets<PacketType>(group, at(src_, srcOffset), at(packetBuffer_, packetOffset), bytes, flag, policy,
                                       semaphore_.rank, semaphore_.peer);
  }
  /// Waits for packet `index` of packetBuffer_ and returns its payload. Called by one thread. A negative maxSpinCount
  /// (MSCCL++'s) means no timeout.
  template <class PacketType = LL16Packet>
  MSCCLPP_INLINE typename PacketType::Payload unpackPacket(std::size_t index, std::uint32_t flag,
                                                           std::int64_t maxSpinCount = 0) const {
    typename PacketType::Payload payload{};
    BoundedWait policy(semaphore_.waitControl, maxSpinCount < 0 ? 0 : semaphore_.waitTimeout);
    const auto* packet = static_cast<const PacketType*>(packetBuffer_) + index;
    policy.until(WaitSite{WaitOperation::Packet, semaphore_.rank, semaphore_.peer, 0, flag}, [&](std::uint64_t& seen) {
      const bool complete = packet->tryRead(flag, payload);
      seen = complete ? flag : 0;
      return complete;
    });
    return payload;
  }

  // MSCCL++-compatible overloads, called by threads 0 to numThreads - 1, which act as a group. Alignment and
  // CopyRemainder: as for copy().
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_INLINE void put(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes, std::uint32_t threadId,
                          std::uint32_t numThreads) const {
    copy<Alignment, CopyRemainder>(at(dst_, dstOffset), at(src_, srcOffset), bytes, threadId, numThreads);
  }
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_INLINE void put(std::uint64_t offset, std::uint64_t bytes, std::uint32_t threadId,
                          std::uint32_t numThreads) const {
    put<Alignment, CopyRemainder>(offset, offset, bytes, threadId, numThreads);
  }
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_INLINE void get(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes, std::uint32_t threadId,
                          std::uint32_t numThreads) const {
    copy<Alignment, CopyRemainder>(at(src_, srcOffset), at(dst_, dstOffset), bytes, threadId, numThreads);
  }
  template <int Alignment = 16, bool CopyRemainder = true>
  MSCCLPP_INLINE void get(std::uint64_t offset, std::uint64_t bytes, std::uint32_t threadId,
                          std::uint32_t numThreads) const {
    get<Alignment, CopyRemainder>(offset, offset, bytes, threadId, numThreads);
  }
  template <class PacketType = LL16Packet>
  MSCCLPP_INLINE void putPackets(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes,
                                 std::uint32_t threadId, std::uint32_t numThreads, std::uint32_t flag) const {
    putPackets<PacketType>(ThreadRange(threadId, numThreads), dstOffset, srcOffset, bytes, flag);
  }
  template <class PacketType = LL16Packet>
  MSCCLPP_INLINE void putPackets(std::uint64_t offset, std::uint64_t bytes, std::uint32_t threadId,
                                 std::uint32_t numThreads, std::uint32_t flag) const {
    putPackets<PacketType>(ThreadRange(threadId, numThreads), offset, offset, bytes, flag);
  }
  template <class PacketType = LL16Packet>
  MSCCLPP_INLINE bool unpackPackets(std::uint64_t packetOffset, std::uint64_t srcOffset, std::uint64_t bytes,
                                    std::uint32_t threadId, std::uint32_t numThreads, std::uint32_t flag,
                                    std::int64_t maxSpinCount = 0) const {
    return unpackPackets<PacketType>(ThreadRange(threadId, numThreads), packetOffset, srcOffset, bytes, flag,
                                     maxSpinCount);
  }
  template <class PacketType = LL16Packet>
  MSCCLPP_INLINE bool unpackPackets(std::uint64_t offset, std::uint64_t bytes, std::uint32_t threadId,
                                    std::uint32_t numThreads, std::uint32_t flag) const {
    return unpackPackets<PacketType>(ThreadRange(threadId, numThreads), offset, offset, bytes, flag);
  }
  /// With maxSpinCount; the types of threadId and maxSpinCount distinguish it from the overload with two offsets.
  template <class PacketType = LL16Packet, detail::SameAs<std::uint32_t> Thread, class SpinCount>
  MSCCLPP_INLINE bool unpackPackets(std::uint64_t offset, std::uint64_t bytes, Thread threadId,
                                    std::uint32_t numThreads, std::uint32_t flag, SpinCount maxSpinCount) const
      requires(static_cast<SpinCount>(-1) < SpinCount{0}) {
    return unpackPackets<PacketType>(ThreadRange(threadId, numThreads), offset, offset, bytes, flag, maxSpinCount);
  }
  template <class PacketType = LL16Packet, class... Arguments>
  [[deprecated("use unpackPackets")]] MSCCLPP_INLINE bool getPackets(Arguments... arguments) const {
    return unpackPackets<PacketType>(arguments...);
  }

 private:
  static MSCCLPP_INLINE std::byte* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }
};

static_assert(Channel<BaseMemoryChannelHandle> && PacketChannel<MemoryChannelHandle, ThreadRange>);

}  // namespace mscclpp
