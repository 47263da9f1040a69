// Packs as rows of flagged packets (LL8, LL16): each thread sends and receives its own pack, without communication
// between threads.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/packet/ll16.hpp"
#include "mscclpp/packet/ll8.hpp"

namespace mscclpp {

/// A model of PackProtocol. A pack is 16 / sizeof(Payload) packets, interleaved 32 packs at a time, so that each store
/// of a warp covers contiguous memory: the links are slow with partial lines.
template <class PacketType>
struct PacketRows {
  using Payload = typename PacketType::Payload;
  static constexpr int packetsPerPack = 16 / static_cast<int>(sizeof(Payload));
  static constexpr int interleave = 32;

  /// Packets as loaded. The flags are checked later: a comparison right after the load would delay the loads from the
  /// next sender.
  struct Fetched {
    PacketType packets[packetsPerPack];
  };

  static constexpr bool needsFullWarp = false;
  static constexpr int initialByte = 0;  // flag 0 is never sent

  static constexpr MSCCLPP_HOST_DEVICE int packsPerRow(int width) { return width; }
  /// Bytes of a slot array for `packs` packs.
  static constexpr MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) {
    return roundUp(packs, interleave) * packetsPerPack * sizeof(PacketType);
  }

  /// The flag is the low half of the epoch. 0 marks an empty slot, so epochs with that flag are skipped, by a step of 3
  /// to keep the parity alternating.
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) {
    return epoch + (static_cast<std::uint32_t>(epoch) == 0xffffffffu ? 3 : 1);
  }

  /// A pack is sent unchanged.
  template <class Warp>
  static MSCCLPP_INLINE Word128 encode(const Warp&, const Word128& pack) {
    return pack;
  }
  template <class Warp>
  static MSCCLPP_INLINE Word128 decode(const Warp&, const Word128& word) {
    return word;
  }

  template <class Warp>
  static MSCCLPP_INLINE void write(const Warp& warp, std::byte* slots, std::size_t row, const Word128& pack,
                                   std::uint64_t epoch) {
    const auto payloads = arch::bitCast<Payloads>(pack);
    MSCCLPP_UNROLL
    for (int k = 0; k < packetsPerPack; ++k)
      packet(warp, slots, row, k)->write(payloads.at[k], static_cast<std::uint32_t>(epoch));
  }

  template <class Warp>
  static MSCCLPP_INLINE Fetched fetch(const Warp& warp, std::byte* slots, std::size_t row, std::uint64_t /*epoch*/) {
    Fetched fetched;
    MSCCLPP_UNROLL
    for (int k = 0; k < packetsPerPack; ++k) fetched.packets[k] = packet(warp, slots, row, k)->load();
    return fetched;
  }

  template <class Warp>
  static MSCCLPP_INLINE bool arrived(const Warp&, std::byte*, std::size_t, const Fetched& fetched,
                                     std::uint64_t epoch) {
    bool complete = true;
    MSCCLPP_UNROLL
    for (int k = 0; k < packetsPerPack; ++k) complete &= fetched.packets[k].hasFlag(static_cast<std::uint32_t>(epoch));
    return complete;
  }

  template <class Warp>
  static MSCCLPP_INLINE Word128 received(const Warp&, const Fetched& fetched) {
    Payloads payloads;
    MSCCLPP_UNROLL
    for (int k = 0; k < packetsPerPack; ++k) payloads.at[k] = fetched.packets[k].payload();
    return arch::bitCast<Word128>(payloads);
  }

  template <class Warp>
  static MSCCLPP_INLINE void resetSlot(const Warp&, std::byte*, std::size_t) {}

  /// Flags repeat after 2^32 epochs, so a slot must not keep its flag that long: once in `clearInterval` epochs, in an
  /// even and the following odd one, a collective clears the slots that the call does not use.
  static constexpr std::uint64_t clearInterval = std::uint64_t{1} << 20;
  template <class Warp>
  static MSCCLPP_INLINE void clear(const Warp& warp, std::byte* slots, std::size_t row) {
    MSCCLPP_UNROLL
    for (int k = 0; k < packetsPerPack; ++k) packet(warp, slots, row, k)->clear();
  }

 private:
  struct alignas(16) Payloads {
    Payload at[packetsPerPack];
  };

  template <class Warp>
  static MSCCLPP_INLINE PacketType* packet(const Warp& warp, std::byte* slots, std::size_t row, int k) {
    const auto lane = static_cast<std::size_t>(warp.rank());
    auto* const packets = reinterpret_cast<PacketType*>(slots) + static_cast<std::size_t>(k) * interleave;
    if constexpr (Warp::width == interleave) {  // a row is a block: no division
      return packets + row * (interleave * packetsPerPack) + lane;
    } else {
      const std::size_t pack = row * Warp::width + lane;
      return packets + pack / interleave * (interleave * packetsPerPack) + pack % interleave;
    }
  }
};

}  // namespace mscclpp
