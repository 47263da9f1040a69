// Packs of 16 bytes in the operands of a transfer: plain elements at any alignment, or packets.
#pragma once

#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/packet/ll16.hpp"
#include "mscclpp/packet/ll8.hpp"
#include "mscclpp/plan/execution.hpp"

namespace mscclpp::plan {

/// Where an operand of a transfer begins: its first element, or its first packet.
struct Place {
  std::byte* address;
  Form form;
  std::int32_t writer;  ///< packets: the rank that writes them, for the record of a failed wait; -1: unknown

  /// The place `bytes` bytes of data further, a multiple of 8: packets of either format take twice as many.
  MSCCLPP_INLINE Place further(std::uint64_t bytes) const {
    return {address + (form == Form::Plain ? bytes : 2 * bytes), form, writer};
  }
  MSCCLPP_INLINE bool isAligned() const { return reinterpret_cast<std::uintptr_t>(address) % sizeof(Word128) == 0; }
};

namespace detail {

/// The words of 4 bytes of a pack.
using PackWords = Vector<std::uint32_t, 4>;

/// Loads `valid` bytes of elements; the rest of the pack is 0.
template <class T>
MSCCLPP_INLINE Word128 loadElements(const std::byte* from, std::uint64_t valid) {
  Pack<T> pack = fromWord<T>(Word128{0, 0});
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) {
    if (static_cast<std::uint64_t>(i) * sizeof(T) < valid) pack[i] = arch::loadPlain<T>(from + i * sizeof(T));
  }
  return toWord<T>(pack);
}
template <class T>
MSCCLPP_INLINE void storeElements(std::byte* to, const Word128& word, std::uint64_t valid) {
  const Pack<T> pack = fromWord<T>(word);
  MSCCLPP_UNROLL
  for (int i = 0; i < packSize<T>; ++i) {
    if (static_cast<std::uint64_t>(i) * sizeof(T) < valid) arch::storePlain<T>(to + i * sizeof(T), pack[i]);
  }
}

/// Loads the packets of the first `valid` bytes of a pack, all in flight together; others are left.
template <class P, int n>
MSCCLPP_INLINE void loadPackets(P (&packets)[n], const std::byte* from, std::uint64_t valid) {
  constexpr std::uint64_t payload = sizeof(Word128) / n;
  MSCCLPP_UNROLL
  for (int i = 0; i < n; ++i) {
    if (static_cast<std::uint64_t>(i) * payload < valid) packets[i] = reinterpret_cast<const P*>(from)[i].load();
  }
}

/// Whether the packets of the first `valid` bytes have arrived; then they are in `word`.
MSCCLPP_INLINE bool tryReadPackets(PacketFormat format, const std::byte* from, std::uint64_t valid, std::uint32_t flag,
                                   Word128& word) {
  PackWords words{};
  bool complete = true;
  if (format == PacketFormat::LL16) {
    LL16Packet packets[2] = {};
    loadPackets(packets, from, valid);
    MSCCLPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      complete = (static_cast<std::uint64_t>(i) * 8 >= valid || packets[i].hasFlag(flag)) && complete;
      words[2 * i] = packets[i].data1;
      words[2 * i + 1] = packets[i].data2;
    }
  } else {
    LL8Packet packets[4] = {};
    loadPackets(packets, from, valid);
    MSCCLPP_UNROLL
    for (int i = 0; i < 4; ++i) {
      complete = (static_cast<std::uint64_t>(i) * 4 >= valid || packets[i].hasFlag(flag)) && complete;
      words[i] = packets[i].data;
    }
  }
  word = arch::bitCast<Word128>(words);
  return complete;
}
MSCCLPP_INLINE void writePackets(PacketFormat format, std::byte* to, const Word128& word, std::uint64_t valid,
                                 std::uint32_t flag) {
  const auto words = arch::bitCast<PackWords>(word);
  if (format == PacketFormat::LL16) {
    auto* packets = reinterpret_cast<LL16Packet*>(to);
    MSCCLPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (static_cast<std::uint64_t>(i) * 8 < valid) packets[i].write(words[2 * i], words[2 * i + 1], flag);
    }
  } else {
    auto* packets = reinterpret_cast<LL8Packet*>(to);
    MSCCLPP_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (static_cast<std::uint64_t>(i) * 4 < valid) packets[i].write(words[i], flag);
    }
  }
}

}  // namespace detail

}  // namespace mscclpp::plan
