// 04: a collective of one's own, an all-gather by packets. One template that a user's kernel calls on a GPU, and that
// CPU threads run in emulation: cpu.cpp and gpu.cu.
#pragma once

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/all_reduce_packets.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/sync/window.hpp"

namespace example {

using namespace mscclpp;

/// Every rank gives `count` elements and gets those of all ranks. Made of the stages that the all-reduce is made of.
/// protocol: any that travels in packets.
template <class T, Protocol protocol>
struct AllGather {
  using P = typename PackProtocolOf<protocol>::Type;
  /// Two halves, used by alternate calls; in each, a slot array for every sender. Why two are enough: a rank that ends
  /// call k has received from all peers in call k, so each of them has entered call k and thus ended call k - 1.
  using Scratch = PacketScratch<P, Pattern::OneShot>;

  struct Args {
    Team<> team;
    Window<> window;            ///< Scratch::windowBytes() bytes on every rank, each P::initialByte at first
    EpochWords epochs;          ///< local; 1 at first
    std::size_t capacityPacks;  ///< packs of the longest contribution
    std::size_t count;          ///< elements of this rank's contribution, the same on all ranks
    BoundedWait wait;
  };

  /// Called by all threads of the grid, on every rank. source(first, valid) gives this rank's elements, a pack at a time;
  /// sink(from, first, pack, valid) takes those of rank `from`. Calls on one scratch come one after the other.
  template <Grid GridType, class Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    if (args.count == 0) return;
    const std::uint64_t epoch = args.epochs.current(grid);
    const Scratch scratch{args.capacityPacks, args.team.size()};
    const PackedMessage<T> message{args.count};
    const auto packs = static_cast<stage::PackCount>(message.packs());
    const auto& team = args.team;
    const auto warp = grid.warp();
    auto wait = args.wait;

    // A warp handles a row of packs at a time, and no thread ever waits for another of its own rank.
    using Warp = decltype(grid.warp());
    const auto stride = static_cast<stage::PackCount>(grid.warpCount() * grid.blockCount());
    const auto firstRow = static_cast<stage::PackCount>(grid.warpIndex() * grid.blockCount() + grid.blockIndex());
    for (auto row = firstRow; row < stage::rowsOf<P, Warp>(packs); row += stride) {
      const stage::RowPosition at = stage::position<P>(warp, row, packs);
      const Pack<T> own = at.active ? message.load(source, at.pack) : Pack<T>{};
      const Word16 word = P::encode(warp, toWord<T>(own));
      for (int i = 0; i < team.size() - 1; ++i) {
        const std::size_t mine = scratch.offset(epoch, 0, team.rank());
        stage::send<P>(warp, args.window.at(team.peer(i), mine), at, word, epoch);
      }
      if (at.active) sink(team.rank(), std::size_t{at.pack} * packSize<T>, own, message.valid(at.pack));
      for (int i = 0; i < team.size() - 1; ++i) {
        const int peer = team.peer(i);
        std::byte* const slots[1] = {args.window.at(team.rank(), scratch.offset(epoch, 0, peer))};
        const stage::RowPosition positions[1] = {at};
        Word16 received[1] = {};
        const auto block = static_cast<std::uint32_t>(grid.blockIndex());
        const WaitSite site{WaitOperation::Packet, team.rank(), peer, block, epoch};
        stage::receive<P, 1>(warp, wait, site, slots, positions, epoch, received);
        const Pack<T> pack = fromWord<T>(P::decode(warp, received[0]));
        if (at.active) sink(peer, std::size_t{at.pack} * packSize<T>, pack, message.valid(at.pack));
      }
    }
    // Packets with 32-bit flags: no slot may keep its flag until it comes again.
    for (int peer = 0; stage::mustForget<P>(epoch) && peer < team.size(); ++peer) {
      stage::forget<P>(warp, args.window.at(team.rank(), scratch.offset(epoch, 0, peer)), firstRow, stride, packs,
                       static_cast<stage::PackCount>(args.capacityPacks));
    }
    args.epochs.advance(grid, P::nextEpoch(epoch));
  }
};

/// A sink that puts the contributions one behind the other.
template <class T>
struct Concatenate {
  T* output;
  std::size_t count;  ///< elements a rank

  MSCCLPP_INLINE void operator()(int from, std::size_t first, const Pack<T>& pack, int valid) const {
    T* to = output + static_cast<std::size_t>(from) * count + first;
    for (int i = 0; i < valid; ++i) to[i] = pack[i];
  }
};

/// Element i of what `rank` contributes.
inline float contribution(int rank, std::size_t i) {
  return static_cast<float>(rank) * 1000.0f + static_cast<float>(i % 997);
}

}  // namespace example
