// 04: a custom collective, an all-gather by packets. One template that a user's kernel calls on a GPU, and that
// CPU threads run in emulation: cpu.cpp and gpu.cu.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/packet_session.hpp"

namespace example {

using namespace mscclpp;

/// Every rank contributes `count` elements and gets those of all ranks. protocol: any that uses packets.
template <class T, Protocol protocol>
struct AllGather {
  /// One array of slots, reused by the data: every rank's result depends on the data of all ranks.
  using Scratch = PacketSlots<typename PackProtocolOf<protocol>::Type, 1, SlotReuse::ByData>;
  using Args = CollectiveArgs<0, Scratch>;

  static constexpr int maxBlockThreads = 512;

  /// For contributions of up to maxCount elements.
  static Scratch scratchFor(std::size_t maxCount, int ranks) { return {ceilDivide(maxCount, packSize<T>), ranks}; }
  static bool accepts(const Args& args, LaunchShape /*shape*/) {
    return ceilDivide(args.count, packSize<T>) <= args.scratch.arrayPacks;
  }

  /// Called by all threads of the grid, on every rank. source(first, valid) gives this rank's elements, a pack at a
  /// time; sink(first, pack, valid) takes those of all ranks, one rank after the other. Calls on one window come one
  /// after the other. Returns whether all waits of this thread succeeded.
  template <Grid GridType, SourceOf<T> Source, SinkOf<T> Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    if (args.count == 0) return true;
    auto&& trace = traceOf(grid);
    auto wait = tracedWait(args.wait, trace);
    PacketSession session(grid, args, wait, trace);
    const RankSlices<T, typename decltype(session)::Index> slices(args.count);
    const std::size_t start = slices.first(args.team.rank(), 0);
    const auto own = [&](std::size_t first, int valid) { return source(first - start, valid); };
    // Each line is one pass over packs, from registers to registers; no thread waits for another of its own rank.
    return session.run(ownSlice(slices) | from(own) | share<0>() | into(sink),
                       eachPeer(slices) | receive<0>() | into(sink));
  }
};

/// Element i of the contribution of `rank`.
inline float contribution(int rank, std::size_t i) {
  return static_cast<float>(rank) * 1000.0f + static_cast<float>(i % 997);
}

}  // namespace example
