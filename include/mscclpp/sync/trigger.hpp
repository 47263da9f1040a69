// Triggers: the entries of a FIFO from device code to a proxy on the host. Two layouts: MSCCL++'s, of 16 bytes, and one
// without limits on sizes and ids.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// What a trigger requests from a proxy service; the values can be or-ed.
using TriggerType = std::uint64_t;
inline constexpr TriggerType TriggerData = 1;  ///< copy to the peer
inline constexpr TriggerType TriggerFlag = 2;  ///< signal the peer
inline constexpr TriggerType TriggerSync = 4;  ///< flush: report when this and all earlier requests have completed
/// Write 8 bytes that are in the trigger itself; alone or with TriggerFlag. Not in MSCCL++.
inline constexpr TriggerType TriggerValue = 8;

/// Ids that a proxy service assigns, from 0.
using SemaphoreId = std::uint32_t;
using MemoryId = std::uint32_t;

/// A request of a port channel, independent of the trigger's layout. Sizes and offsets are in bytes. With TriggerValue,
/// `size` holds the value.
struct PortRequest {
  TriggerType type;
  MemoryId dstMemory;
  std::uint64_t dstOffset;
  MemoryId srcMemory;
  std::uint64_t srcOffset;
  std::uint64_t size;
  SemaphoreId semaphore;
};

/// The field of a request that did not fit into a trigger.
enum class TriggerField : std::uint32_t { None = 0, Size, SrcOffset, DstOffset, SrcMemory, DstMemory, Semaphore };

/// The highest bit of each 16-byte word of a trigger is the FIFO's phase bit, which shows that the word has arrived.
inline constexpr std::uint64_t triggerPhaseBit = std::uint64_t{1} << 63;

/// A layout of triggers, as a FIFO requires: `words` words of 16 bytes, in slots of sizeof(T) bytes.
template <class T>
concept TriggerLayout = requires(const T& trigger, const Word128* words) {
  requires T::words * sizeof(Word128) <= sizeof(T) && sizeof(T) % sizeof(Word128) == 0;
  {trigger.word(0)};
  {T::fromWords(words)};
};

/// A layout that a port channel can use. make() never truncates a value: a request that does not fit becomes a trigger
/// of type 0 that names the field and its value.
template <class T>
concept PortTriggerLayout = TriggerLayout<T> && requires(const T& trigger, const PortRequest& request) {
  {T::make(request)};
  {trigger.request()};
  {trigger.overflow()};
  {trigger.overflowValue()};
  // Bits of the fields for ids of memories and semaphores, at most 32.
  {T::bitsMemoryId};
  {T::bitsSemaphoreId};
};

/// MSCCL++'s trigger: 16 bytes, one store. fst: size and source offset (32 bits each); snd: destination offset (32),
/// source memory (9), destination memory (9), type (3), semaphore (10), phase bit. A custom proxy can use fst and the
/// lower 63 bits of snd in any way. Requests that MSCCL++ lacks have type 0 and their kind in the source memory's
/// field: the value in fst to write, with or without a signal; or an overflow.
union alignas(16) ProxyTrigger {
  static constexpr int words = 1;
  static constexpr int bitsSize = 32;
  static constexpr int bitsOffset = 32;
  static constexpr int bitsMemoryId = 9;
  static constexpr int bitsType = 3;
  static constexpr int bitsSemaphoreId = 10;

  MSCCLPP_EXTENSION struct {
    std::uint64_t fst;
    std::uint64_t snd;
  };
  /// The same bits as named fields.
  struct {
    std::uint64_t size : bitsSize;
    std::uint64_t srcOffset : bitsOffset;
    std::uint64_t dstOffset : bitsOffset;
    std::uint64_t srcMemoryId : bitsMemoryId;
    std::uint64_t dstMemoryId : bitsMemoryId;
    std::uint64_t type : bitsType;
    std::uint64_t semaphoreId : bitsSemaphoreId;
    std::uint64_t reserved : 1;  ///< the FIFO's phase bit
  } fields;

  MSCCLPP_INLINE constexpr ProxyTrigger(std::uint64_t first = 0, std::uint64_t second = 0) {
    fst = first;
    snd = second;
  }
  /// MSCCL++-compatible form of make().
  MSCCLPP_INLINE ProxyTrigger(TriggerType type, MemoryId dst, std::uint64_t dstOffset, MemoryId src,
                              std::uint64_t srcOffset, std::uint64_t bytes, SemaphoreId semaphore)
      : ProxyTrigger(make({type, dst, dstOffset, src, srcOffset, bytes, semaphore})) {}

  MSCCLPP_INLINE Word128 word(int /*index*/) const { return {fst, snd}; }
  static MSCCLPP_INLINE ProxyTrigger fromWords(const Word128* from) { return {from->lo, from->hi & ~triggerPhaseBit}; }

  static MSCCLPP_INLINE ProxyTrigger make(const PortRequest& request) {
    const bool isValue = (request.type & TriggerValue) != 0;
    const std::uint64_t tooLarge =
        (isValue ? request.dstOffset : request.size | request.srcOffset | request.dstOffset) >> bitsSize |
        (request.srcMemory | request.dstMemory) >> bitsMemoryId | request.semaphore >> bitsSemaphoreId;
    if (tooLarge != 0) return makeOverflow(request);
    const std::uint64_t destination = request.dstOffset | std::uint64_t{request.dstMemory} << dstMemoryShift |
                                      std::uint64_t{request.semaphore} << semaphoreShift;
    if (isValue)
      return {request.size, destination | ((request.type & TriggerFlag) != 0 ? valueAndSignal : value)
                                              << srcMemoryShift};
    return {request.size | request.srcOffset << srcOffsetShift,
            destination | std::uint64_t{request.srcMemory} << srcMemoryShift | request.type << typeShift};
  }
  MSCCLPP_INLINE PortRequest request() const {
    PortRequest request{field(snd, typeShift, bitsType),
                        static_cast<MemoryId>(field(snd, dstMemoryShift, bitsMemoryId)),
                        field(snd, 0, bitsOffset),
                        static_cast<MemoryId>(field(snd, srcMemoryShift, bitsMemoryId)),
                        field(fst, srcOffsetShift, bitsOffset),
                        field(fst, 0, bitsSize),
                        static_cast<SemaphoreId>(field(snd, semaphoreShift, bitsSemaphoreId))};
    if (request.type == 0 && (request.srcMemory == value || request.srcMemory == valueAndSignal)) {
      request.type = request.srcMemory == value ? TriggerValue : TriggerValue | TriggerFlag;
      request.srcMemory = 0;
      request.srcOffset = 0;
      request.size = fst;
    }
    return request;
  }
  /// For a trigger of type 0: the field that did not fit, and below its value.
  MSCCLPP_INLINE TriggerField overflow() const {
    const std::uint64_t which = field(snd, 0, bitsOffset);
    const bool known =
        field(snd, srcMemoryShift, bitsMemoryId) == 0 && which <= static_cast<std::uint64_t>(TriggerField::Semaphore);
    return known ? static_cast<TriggerField>(which) : TriggerField::None;
  }
  MSCCLPP_INLINE std::uint64_t overflowValue() const { return fst; }

 private:
  static constexpr int srcOffsetShift = bitsSize;
  static constexpr int srcMemoryShift = bitsOffset;
  static constexpr int dstMemoryShift = srcMemoryShift + bitsMemoryId;
  static constexpr int typeShift = dstMemoryShift + bitsMemoryId;
  static constexpr int semaphoreShift = typeShift + bitsType;
  static_assert(semaphoreShift + bitsSemaphoreId == 63);
  // Kinds of triggers of type 0; a third, 0, is an overflow.
  static constexpr std::uint64_t value = 1;
  static constexpr std::uint64_t valueAndSignal = 2;

  static MSCCLPP_INLINE std::uint64_t field(std::uint64_t word, int shift, int bits) {
    return word >> shift & ((std::uint64_t{1} << bits) - 1);
  }
  static MSCCLPP_HOST_DEVICE MSCCLPP_NOINLINE ProxyTrigger makeOverflow(PortRequest request) {
    const auto encode = [](TriggerField which, std::uint64_t value) {
      return ProxyTrigger{value, static_cast<std::uint64_t>(which)};
    };
    if ((request.type & TriggerValue) == 0 && request.size >> bitsSize != 0) {
      return encode(TriggerField::Size, request.size);
    }
    if (request.srcOffset >> bitsOffset != 0) return encode(TriggerField::SrcOffset, request.srcOffset);
    if (request.dstOffset >> bitsOffset != 0) return encode(TriggerField::DstOffset, request.dstOffset);
    if (request.srcMemory >> bitsMemoryId != 0) return encode(TriggerField::SrcMemory, request.srcMemory);
    if (request.dstMemory >> bitsMemoryId != 0) return encode(TriggerField::DstMemory, request.dstMemory);
    return encode(TriggerField::Semaphore, request.semaphore);
  }
};

/// A trigger without limits: 64-bit size and offsets, 32-bit ids of memories and semaphores. Three stores into a slot
/// of 64 bytes. Every word has a phase bit, so the stores need not be ordered.
struct alignas(64) WideTrigger {
  static constexpr int words = 3;
  static constexpr int bitsMemoryId = 32;
  static constexpr int bitsSemaphoreId = 32;

  std::uint64_t size = 0;
  std::uint64_t srcOffset = 0;
  std::uint64_t dstOffset = 0;
  MemoryId srcMemory = 0;
  MemoryId dstMemory = 0;
  SemaphoreId semaphore = 0;
  std::uint32_t type = 0;  ///< 31 bits

  MSCCLPP_INLINE Word128 word(int index) const {
    if (index == 0) return {size, std::uint64_t{type} << 32 | srcMemory};
    if (index == 1) return {srcOffset, dstMemory};
    return {dstOffset, semaphore};
  }
  static MSCCLPP_INLINE WideTrigger fromWords(const Word128* from) {
    WideTrigger trigger;
    trigger.size = from[0].lo;
    trigger.srcOffset = from[1].lo;
    trigger.dstOffset = from[2].lo;
    trigger.srcMemory = static_cast<MemoryId>(from[0].hi);
    trigger.dstMemory = static_cast<MemoryId>(from[1].hi);
    trigger.semaphore = static_cast<SemaphoreId>(from[2].hi);
    trigger.type = static_cast<std::uint32_t>((from[0].hi & ~triggerPhaseBit) >> 32);
    return trigger;
  }

  static MSCCLPP_INLINE WideTrigger make(const PortRequest& request) {
    WideTrigger trigger;
    trigger.size = request.size;
    trigger.srcOffset = request.srcOffset;
    trigger.dstOffset = request.dstOffset;
    trigger.srcMemory = request.srcMemory;
    trigger.dstMemory = request.dstMemory;
    trigger.semaphore = request.semaphore;
    trigger.type = static_cast<std::uint32_t>(request.type);
    return trigger;
  }
  MSCCLPP_INLINE PortRequest request() const {
    return {type, dstMemory, dstOffset, srcMemory, srcOffset, size, semaphore};
  }
  MSCCLPP_INLINE TriggerField overflow() const { return TriggerField::None; }
  MSCCLPP_INLINE std::uint64_t overflowValue() const { return 0; }
};

static_assert(PortTriggerLayout<ProxyTrigger> && PortTriggerLayout<WideTrigger>);
static_assert(sizeof(ProxyTrigger) == 16 && sizeof(WideTrigger) == 64);

}  // namespace mscclpp
