// 04: a custom collective, an all-gather by packets. One template that a user's kernel calls on a GPU, and that
// CPU threads run in emulation: cpu.cpp and gpu.cu.
#pragma once

#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/packet_session.hpp"

namespace example {

using namespace mscclpp;

/// Every rank contributes `count` elements and gets those of all ranks. protocol: any that uses packets.
template <class T, Protocol protocol>
struct AllGather {
  using P = typename PackProtocolOf<protocol>::Type;
  /// Slots are reused by the data: every rank's result depends on the data of all ranks.
  using Slots = PacketSlots<P, 1, SlotReuse::ByData>;

  struct Args {
    Team<> team;
    Window<> window;            ///< Slots::windowBytes() bytes on every rank, each Slots::initialByte at first
    EpochWords epochs;          ///< local; Slots::firstEpoch at first
    std::size_t capacityPacks;  ///< packs of the longest contribution
    std::size_t count;          ///< elements of this rank's contribution, the same on all ranks
    BoundedWait wait;
  };

  /// Called by all threads of the grid, on every rank. source(first, valid) gives this rank's elements, a pack at a
  /// time; sink(from, first, pack, valid) takes those of rank `from`. Calls on one window come one after the other.
  template <Grid GridType, SourceOf<T> Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    if (args.count == 0) return;
    auto&& trace = traceOf(grid);
    auto wait = tracedWait(args.wait, trace);
    PacketSession session(grid, args.team, args.window, args.epochs, Slots{args.capacityPacks, args.team.size()}, wait,
                          trace);
    const PackedMessage<T> message{args.count};
    const auto packs = static_cast<stage::PackCount>(message.packs());
    // A warp handles a row of packs at a time, and no thread ever waits for another of its own rank.
    session.forEachRow(packs, [&](stage::PackCount row) {
      const auto at = session.position(row, packs);
      const auto take = [&](int from, const Pack<T>& pack) {
        if (at.active) sink(from, std::size_t{at.pack} * packSize<T>, pack, message.valid(at.pack));
      };
      const Pack<T> own = at.active ? message.load(source, at.pack) : Pack<T>{};
      session.broadcast(0, at, session.encode(toWord<T>(own)));
      take(args.team.rank(), own);
      for (int i = 0; i < args.team.size() - 1; ++i) {
        const int peer = args.team.peer(i);
        take(peer, fromWord<T>(session.decode(session.receive(0, peer, at))));
      }
    });
    session.finish([&](int /*phase*/, int from) { return from == args.team.rank() ? 0 : packs; });
  }
};

/// A sink that concatenates the contributions.
template <class T>
struct Concatenate {
  T* output;
  std::size_t count;  ///< elements per rank

  MSCCLPP_INLINE void operator()(int from, std::size_t first, const Pack<T>& pack, int valid) const {
    T* to = output + static_cast<std::size_t>(from) * count + first;
    for (int i = 0; i < valid; ++i) to[i] = pack[i];
  }
};

/// Element i of the contribution of `rank`.
inline float contribution(int rank, std::size_t i) {
  return static_cast<float>(rank) * 1000.0f + static_cast<float>(i % 997);
}

}  // namespace example
