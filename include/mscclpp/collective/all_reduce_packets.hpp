// All-reduce of messages that fit in scratch, by packets that carry their own arrival marks: no barrier, no fence, no word between threads.
#pragma once

#include "mscclpp/basic/access.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// Scratch of a packet all-reduce: two halves used by alternate calls. Why two suffice: a rank that enters call k has received data of call k-1 from every
/// peer, so each of them had entered call k-1 and so had ended call k-2, reading and re-poisoning included. docs/memory_model.md gives the whole argument.
template <class P, Pattern pattern>
struct PacketScratch {
  std::size_t capacityPacks;  ///< packs of the longest message
  int ranks;

  /// Packs that one rank reduces in a message of that many. Two-shot slices start on 128-byte boundaries of the message.
  static MSCCLPP_HOST_DEVICE std::size_t slicePacks(std::size_t packs, int ranks) {
    return pattern == Pattern::OneShot ? packs : roundUp(ceilDivide(packs, static_cast<std::size_t>(ranks)), 8);
  }
  MSCCLPP_HOST_DEVICE std::size_t arrayBytes() const { return P::bytes(slicePacks(capacityPacks, ranks)); }
  MSCCLPP_HOST_DEVICE std::size_t phaseBytes() const { return arrayBytes() * static_cast<std::size_t>(ranks); }
  MSCCLPP_HOST_DEVICE std::size_t halfBytes() const { return phaseBytes() * (pattern == Pattern::OneShot ? 1 : 2); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return halfBytes() * 2; }

  /// Offset in the window of the slots that `from` writes in `phase` (0: inputs, 1: results) of a call.
  MSCCLPP_HOST_DEVICE std::size_t offset(std::uint64_t epoch, int phase, int from) const {
    return (epoch & 1) * halfBytes() + static_cast<std::size_t>(phase) * phaseBytes() +
           static_cast<std::size_t>(from) * arrayBytes();
  }
};

/// The packet form of AllReduce (collective/all_reduce.hpp says what the parameters mean).
template <class T, class Op, AllReduceConfig config>
struct AllReducePackets {
  using P = typename PackProtocolOf<config.protocol>::Type;
  using Scratch = PacketScratch<P, config.pattern>;
  using Message = PackedMessage<T>;
  static constexpr int ranks = config.ranks;

  template <class Args, class Grid, class Source, class Sink>
  static MSCCLPP_INLINE void run(const Grid& grid, const Args& args, const Source& source, const Sink& sink) {
    const std::uint64_t epoch = args.epochs.current(grid);
    const Scratch scratch{args.capacityPacks, args.team.size()};
    const Message message{args.count};
    const auto warp = grid.warp();
    // Rows go round the blocks first: a small message spreads over all SMs, each of which then has few stores to drain.
    const std::size_t warpIndex = static_cast<std::size_t>(grid.warpIndex()) * grid.blockCount() + grid.blockIndex();
    const std::size_t warps = static_cast<std::size_t>(grid.warpCount()) * grid.blockCount();
    auto wait = args.wait;
    if constexpr (config.pattern == Pattern::OneShot) {
      oneShot(warp, warpIndex, warps, wait, args, scratch, message, epoch,
              static_cast<std::uint32_t>(grid.blockIndex()), source, sink);
    } else {
      twoShot(warp, warpIndex, warps, wait, args, scratch, message, epoch,
              static_cast<std::uint32_t>(grid.blockIndex()), source, sink);
    }
    args.epochs.advance(grid, P::nextEpoch(epoch));
  }

 private:
  static MSCCLPP_INLINE Word16 loadIf(bool active, const Message& message, const auto& source, std::size_t pack) {
    return active ? toWord<T>(message.load(source, pack)) : Word16{0, 0};
  }

  template <class Warp, class Wait, class Args, class Source, class Sink>
  static MSCCLPP_INLINE void oneShot(const Warp& warp, std::size_t firstRow, std::size_t stride, Wait& wait,
                                     const Args& args, const Scratch& scratch, const Message& message,
                                     std::uint64_t epoch, std::uint32_t block, const Source& source, const Sink& sink) {
    const auto& team = args.team;
    const std::size_t packs = message.packs();
    const std::size_t outgoing = scratch.offset(epoch, 0, team.rank());
    for (std::size_t row = firstRow; row < stage::rowsOf<P, Warp>(packs); row += stride) {
      const auto at = stage::position<P>(warp, row, packs);
      const Word16 own = loadIf(at.active, message, source, at.pack);
      MSCCLPP_UNROLL
      for (int i = 0; i < team.size() - 1; ++i)
        stage::send<P>(warp, args.window.at(team.peer(i), outgoing), at, own, epoch);
      const auto slotsOf = [&](int from) { return args.window.at(team.rank(), scratch.offset(epoch, 0, from)); };
      const Pack<T> result =
          stage::reduce<P, T, Op>(warp, wait, site(team, block, epoch), team, slotsOf, at, epoch, fromWord<T>(own));
      if (at.active) message.store(sink, at.pack, result);
    }
  }

  template <class Warp, class Wait, class Args, class Source, class Sink>
  static MSCCLPP_INLINE void twoShot(const Warp& warp, std::size_t firstRow, std::size_t stride, Wait& wait,
                                     const Args& args, const Scratch& scratch, const Message& message,
                                     std::uint64_t epoch, std::uint32_t block, const Source& source, const Sink& sink) {
    const auto& team = args.team;
    const std::size_t packs = message.packs();
    const std::size_t slice = Scratch::slicePacks(packs, team.size());
    const std::size_t rows = stage::rowsOf<P, Warp>(slice);
    const int rotation = static_cast<int>(block);
    const auto slicePacksOf = [&](int rank) {
      return steppedPart(packs, slice, static_cast<std::size_t>(rank)).size();
    };

    // Scatter: each peer gets its slice of this rank's input.
    const std::size_t inputs = scratch.offset(epoch, 0, team.rank());
    for (std::size_t row = firstRow; row < rows; row += stride) {
      MSCCLPP_UNROLL
      for (int i = 0; i < team.size() - 1; ++i) {
        const int peer = team.peer(i, rotation);
        const auto at = stage::position<P>(warp, row, slicePacksOf(peer));
        const Word16 pack = loadIf(at.active, message, source, static_cast<std::size_t>(peer) * slice + at.pack);
        stage::send<P>(warp, args.window.at(peer, inputs), at, pack, epoch);
      }
    }
    // Reduce this rank's slice, share each result as soon as it is there.
    const std::size_t results = scratch.offset(epoch, 1, team.rank());
    const std::size_t sliceStart = static_cast<std::size_t>(team.rank()) * slice;
    const std::size_t ownPacks = slicePacksOf(team.rank());
    for (std::size_t row = firstRow; row < stage::rowsOf<P, Warp>(ownPacks); row += stride) {
      const auto at = stage::position<P>(warp, row, ownPacks);
      const Word16 own = loadIf(at.active, message, source, sliceStart + at.pack);
      const auto slotsOf = [&](int from) { return args.window.at(team.rank(), scratch.offset(epoch, 0, from)); };
      const Pack<T> result =
          stage::reduce<P, T, Op>(warp, wait, site(team, block, epoch), team, slotsOf, at, epoch, fromWord<T>(own));
      if (wait.failed()) continue;  // the result is meaningless: let the peers time out too
      MSCCLPP_UNROLL
      for (int i = 0; i < team.size() - 1; ++i) {
        stage::send<P>(warp, args.window.at(team.peer(i, rotation), results), at, toWord<T>(result), epoch);
      }
      if (at.active) message.store(sink, sliceStart + at.pack, result);
    }
    // Collect the other slices: with a fixed number of ranks, all peers' packs of a row are in flight together.
    constexpr int batch = ranks > 1 ? ranks - 1 : 1;
    for (std::size_t row = firstRow; row < rows; row += stride) {
      MSCCLPP_UNROLL
      for (int first = 0; first < team.size() - 1; first += batch) {
        std::byte* slots[batch];
        stage::RowPosition positions[batch];
        int peers[batch];
        Word16 results16[batch] = {};
        MSCCLPP_UNROLL
        for (int i = 0; i < batch; ++i) {
          peers[i] = team.peer(first + i, rotation);
          positions[i] = stage::position<P>(warp, row, slicePacksOf(peers[i]));
          slots[i] = args.window.at(team.rank(), scratch.offset(epoch, 1, peers[i]));
        }
        WaitSite from = site(team, block, epoch);
        if (batch == 1) from.peer = peers[0];
        stage::receive<P, batch>(warp, wait, from, slots, positions, epoch, results16);
        MSCCLPP_UNROLL
        for (int i = 0; i < batch; ++i) {
          const std::size_t pack = static_cast<std::size_t>(peers[i]) * slice + positions[i].pack;
          if (positions[i].active) message.store(sink, pack, fromWord<T>(results16[i]));
        }
      }
    }
  }

  template <class TeamType>
  static MSCCLPP_INLINE WaitSite site(const TeamType& team, std::uint32_t block, std::uint64_t epoch) {
    return WaitSite{WaitOperation::Packet, team.rank(), -1, block, epoch};
  }
};

}  // namespace mscclpp
