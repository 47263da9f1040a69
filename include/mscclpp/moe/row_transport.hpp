// How a row of a token travels to another rank: as packets, which carry their own flags, or by stores or bulk copies
// that a flag of the row publishes. port_transport.hpp has one through port channels.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/rows.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"

namespace mscclpp::moe {

/// Rows as packets: the low-latency form. A warp sends and receives one step of a row at a time, and no fence is
/// needed. The slots are in two sets between which calls alternate, so that nobody waits before it sends. P: a
/// PackProtocol whose lanes are independent, such as Sentinel or PacketRows<LL16Packet>.
template <class P>
struct PacketTransport {
  static_assert(!P::needsFullWarp, "use Sentinel, or PacketRows of LL16Packet or LL8Packet: LL128 sends whole lines");
  using Protocol = P;
  static constexpr bool hasRowFlags = false;
  static constexpr bool usesBulkCopies = false;
  static constexpr bool usesPorts = false;
  static constexpr std::uint64_t sets = 2;
  static constexpr int initialByte = P::initialByte;

  static MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) { return P::bytes(packs); }
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) { return P::nextEpoch(epoch); }

  static MSCCLPP_INLINE void write(std::byte* slots, std::uint32_t slot, const Word128& word, std::uint64_t epoch) {
    P::write(Lane{}, slots, slot, P::encode(Lane{}, word), epoch);
  }
  /// Waits for N packs, those with isPresent[i] only, with their loads in flight together.
  template <int N, WaitPolicy Wait>
  static MSCCLPP_INLINE bool read(Wait& wait, const WaitSite& site, std::byte* const (&slots)[N],
                                  const std::uint32_t (&slot)[N], const bool (&isPresent)[N], std::uint64_t epoch,
                                  Word128 (&words)[N], bool /*streams*/) {
    rows::RowPosition at[N];
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) at[i] = {slot[i], slot[i], isPresent[i], isPresent[i]};
    return rows::receive<P, N>(Lane{}, wait, site, slots, at, epoch, words);
  }

 private:
  using Lane = cpu::SerialGroup;
};

/// Rows by plain stores: the bandwidth form. A warp sends a row, or a piece of one, and then sets its flag with
/// release; the receiver acquires the flag. The slots are in one set: a rank writes those of another once that one has
/// entered the call.
struct StoreTransport {
  static constexpr bool hasRowFlags = true;
  static constexpr bool usesBulkCopies = false;
  static constexpr bool usesPorts = false;
  static constexpr std::uint64_t sets = 1;
  static constexpr int initialByte = 0;

  static MSCCLPP_HOST_DEVICE std::size_t bytes(std::size_t packs) { return packs * sizeof(Word128); }
  static MSCCLPP_INLINE std::uint64_t nextEpoch(std::uint64_t epoch) { return epoch + 1; }

  /// Each lane sets the flag of a piece of a row, or none (null), of which the lanes of the warp have sent all packs or
  /// know, by acquire, that others have. Called by all of them.
  template <class Warp>
  static MSCCLPP_INLINE void publish(const Warp& warp, std::uint64_t* flag, std::uint64_t value) {
    warp.sync();
    if (flag != nullptr) arch::store<arch::Order::Release, arch::Scope::System>(flag, value);
  }

  static MSCCLPP_INLINE void write(std::byte* slots, std::uint32_t slot, const Word128& word, std::uint64_t /*epoch*/) {
    arch::storeWide(slots + std::size_t{slot} * sizeof(Word128), word);
  }
  template <int N, WaitPolicy Wait>
  static MSCCLPP_INLINE bool read(Wait& /*wait*/, const WaitSite& /*site*/, std::byte* const (&slots)[N],
                                  const std::uint32_t (&slot)[N], const bool (&isPresent)[N], std::uint64_t /*epoch*/,
                                  Word128 (&words)[N], bool streams) {
    MSCCLPP_UNROLL
    for (int i = 0; i < N; ++i) {
      if (isPresent[i]) words[i] = arch::loadWide(slots[i] + std::size_t{slot[i]} * sizeof(Word128), streams);
    }
    return true;
  }
};

/// StoreTransport, but dispatch sends rows that are arrays by bulk copies: the copy engine reads a row once, and writes
/// it to each rank. For few multiprocessors. The receiver, and a sender with another source, before sm_90 or without
/// shared memory, does as with StoreTransport, and ranks may differ in which of the two they use.
struct BulkTransport : StoreTransport {
  static constexpr bool usesBulkCopies = true;
  static constexpr int queues = 4;      ///< warps of a block that send, each with a queue of copies
  static constexpr int rowsAtOnce = 8;  ///< that a warp sends before it waits for the copies

  /// destinations: the most ranks of the team.
  template <int destinations>
  using Queue = BulkCopier<BulkCopyConfig{
      .chunkBytes = 8 << 10, .chunks = 4, .prefetchDepth = 2, .quantum = 1, .destinations = destinations}>;

  /// Waits until the copies of a queue have completed. Called by all lanes; the first may then announce the rows.
  template <class CopyQueue, class Warp, WaitPolicy Wait>
  static MSCCLPP_INLINE void complete(CopyQueue& queue, const Warp& warp, Wait& wait) {
    queue.flush(warp, wait);
  }
};

}  // namespace mscclpp::moe
