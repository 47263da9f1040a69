// All-reduce of messages that fit in scratch, by packets that carry their own arrival marks: no barrier, no fence, no word between threads.
#pragma once

#include "mscclpp/basic/access.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
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
  static constexpr int initialByte = P::initialByte;  ///< of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;

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
  using PackCount = stage::PackCount;
  static constexpr int ranks = config.ranks;

  template <class Args, class Grid, class Source, class Sink>
  static MSCCLPP_INLINE void run(const Grid& grid, const Args& args, const Source& source, const Sink& sink) {
    const std::uint64_t epoch = args.epochs.current(grid);
    const Scratch scratch{args.capacityPacks, args.team.size()};
    const Message message{args.count};
    const auto warp = grid.warp();
    // Rows go round the blocks first: a small message spreads over all SMs, each of which then has few stores to drain.
    const auto warpIndex = static_cast<PackCount>(grid.warpIndex() * grid.blockCount() + grid.blockIndex());
    const auto warps = static_cast<PackCount>(grid.warpCount() * grid.blockCount());
    auto&& trace = traceOf(grid);
    auto wait = tracedWait(args.wait, trace);
    if constexpr (config.pattern == Pattern::OneShot) {
      oneShot(warp, warpIndex, warps, trace, wait, args, scratch, message, epoch,
              static_cast<std::uint32_t>(grid.blockIndex()), source, sink);
    } else {
      twoShot(warp, warpIndex, warps, trace, wait, args, scratch, message, epoch,
              static_cast<std::uint32_t>(grid.blockIndex()), source, sink);
    }
    args.epochs.advance(grid, P::nextEpoch(epoch));
  }

 private:
  /// The pack at `start` + the thread's position in its row; nothing if it has none there.
  static MSCCLPP_INLINE Word16 load(const stage::RowPosition& at, const Message& message, const auto& source,
                                    PackCount start) {
    return at.active ? toWord<T>(message.load(source, std::size_t{start} + at.pack)) : Word16{0, 0};
  }
  static MSCCLPP_INLINE void store(const stage::RowPosition& at, const Message& message, const auto& sink,
                                   PackCount start, const Word16& pack) {
    if (at.active) message.store(sink, std::size_t{start} + at.pack, fromWord<T>(pack));
  }

  template <class Warp, class Trace, class Wait, class Args, class Source, class Sink>
  static MSCCLPP_INLINE void oneShot(const Warp& warp, PackCount firstRow, PackCount stride, Trace& trace, Wait& wait,
                                     const Args& args, const Scratch& scratch, const Message& message,
                                     std::uint64_t epoch, std::uint32_t block, const Source& source, const Sink& sink) {
    const auto& team = args.team;
    const auto packs = static_cast<PackCount>(message.packs());
    const std::size_t outgoing = scratch.offset(epoch, 0, team.rank());
    for (PackCount row = firstRow; row < stage::rowsOf<P, Warp>(packs); row += stride) {
      const auto at = stage::position<P>(warp, row, packs);
      if (!at.present) continue;
      trace.begin(TraceId::Push, row);
      const Word16 own = P::encode(warp, load(at, message, source, 0));
      MSCCLPP_UNROLL
      for (int i = 0; i < team.size() - 1; ++i)
        stage::send<P>(warp, args.window.at(team.peer(i), outgoing), at, own, epoch);
      trace.end(TraceId::Push);
      const TraceSpan reducing(trace, TraceId::Reduce, row);
      const auto slotsOf = [&](int from) { return args.window.at(team.rank(), scratch.offset(epoch, 0, from)); };
      const Word16 result =
          stage::reduce<P, T, Op>(warp, wait, site(team, block, epoch), team, slotsOf, at, epoch, own);
      store(at, message, sink, 0, P::decode(warp, result));
    }
    forgetUnused(warp, firstRow, stride, args, scratch, epoch, 0, [&](int) { return packs; });
  }

  template <class Warp, class Trace, class Wait, class Args, class Source, class Sink>
  static MSCCLPP_INLINE void twoShot(const Warp& warp, PackCount firstRow, PackCount stride, Trace& trace, Wait& wait,
                                     const Args& args, const Scratch& scratch, const Message& message,
                                     std::uint64_t epoch, std::uint32_t block, const Source& source, const Sink& sink) {
    const auto& team = args.team;
    const auto packs = static_cast<PackCount>(message.packs());
    const auto slice = static_cast<PackCount>(Scratch::slicePacks(packs, team.size()));
    const PackCount rows = stage::rowsOf<P, Warp>(slice);
    const int rotation = team.rotation(block);
    const auto slicePacksOf = [&](int rank) {
      const PackCount start = static_cast<PackCount>(rank) * slice;
      return start >= packs ? 0 : packs - start < slice ? packs - start : slice;
    };

    // With a fixed number of ranks, what a row moves for all peers is in flight together.
    constexpr int batch = ranks > 1 ? ranks - 1 : 1;
    // Scatter: each peer gets its slice of this rank's input.
    const std::size_t inputs = scratch.offset(epoch, 0, team.rank());
    trace.begin(TraceId::Push, firstRow);
    for (PackCount row = firstRow; row < rows; row += stride) {
      MSCCLPP_UNROLL
      for (int first = 0; first < team.size() - 1; first += batch) {
        stage::RowPosition positions[batch];
        Word16 inputPacks[batch];
        MSCCLPP_UNROLL
        for (int i = 0; i < batch; ++i) {
          const int peer = team.peer(first + i, rotation);
          positions[i] = stage::position<P>(warp, row, slicePacksOf(peer));
          inputPacks[i] = load(positions[i], message, source, static_cast<PackCount>(peer) * slice);
        }
        MSCCLPP_UNROLL
        for (int i = 0; i < batch; ++i) {
          if (!positions[i].present) continue;
          std::byte* const slots = args.window.at(team.peer(first + i, rotation), inputs);
          stage::send<P>(warp, slots, positions[i], P::encode(warp, inputPacks[i]), epoch);
        }
      }
    }
    trace.end(TraceId::Push);
    // Reduce this rank's slice, share each result as soon as it is there.
    const std::size_t results = scratch.offset(epoch, 1, team.rank());
    const PackCount sliceStart = static_cast<PackCount>(team.rank()) * slice;
    const PackCount ownPacks = slicePacksOf(team.rank());
    trace.begin(TraceId::Reduce, firstRow);
    for (PackCount row = firstRow; row < stage::rowsOf<P, Warp>(ownPacks); row += stride) {
      const auto at = stage::position<P>(warp, row, ownPacks);
      if (!at.present) continue;
      const Word16 own = P::encode(warp, load(at, message, source, sliceStart));
      const auto slotsOf = [&](int from) { return args.window.at(team.rank(), scratch.offset(epoch, 0, from)); };
      const Word16 result =
          stage::reduce<P, T, Op>(warp, wait, site(team, block, epoch), team, slotsOf, at, epoch, own);
      if (wait.failed()) continue;  // the result is meaningless: let the peers time out too
      MSCCLPP_UNROLL
      for (int i = 0; i < team.size() - 1; ++i)
        stage::send<P>(warp, args.window.at(team.peer(i, rotation), results), at, result, epoch);
      store(at, message, sink, sliceStart, P::decode(warp, result));
    }
    trace.end(TraceId::Reduce);
    // Collect the other slices.
    trace.begin(TraceId::Collect, firstRow);
    for (PackCount row = firstRow; row < rows; row += stride) {
      MSCCLPP_UNROLL
      for (int first = 0; first < team.size() - 1; first += batch) {
        std::byte* slots[batch];
        stage::RowPosition positions[batch];
        int peers[batch];
        Word16 words[batch] = {};
        MSCCLPP_UNROLL
        for (int i = 0; i < batch; ++i) {
          peers[i] = team.peer(first + i, rotation);
          positions[i] = stage::position<P>(warp, row, slicePacksOf(peers[i]));
          slots[i] = args.window.at(team.rank(), scratch.offset(epoch, 1, peers[i]));
        }
        WaitSite from = site(team, block, epoch);
        if (batch == 1) from.peer = peers[0];
        stage::receive<P, batch>(warp, wait, from, slots, positions, epoch, words);
        MSCCLPP_UNROLL
        for (int i = 0; i < batch; ++i) {
          if (positions[i].present)
            store(positions[i], message, sink, static_cast<PackCount>(peers[i]) * slice, P::decode(warp, words[i]));
        }
      }
    }
    trace.end(TraceId::Collect);
    forgetUnused(warp, firstRow, stride, args, scratch, epoch, 0, [&](int) { return ownPacks; });
    forgetUnused(warp, firstRow, stride, args, scratch, epoch, 1, slicePacksOf);
  }

  /// Now and then, forgets the slots of one phase that this call did not use. No peer writes them meanwhile: the next writer is the call after the next,
  /// which begins when this one has ended everywhere.
  template <class Warp, class Args>
  static MSCCLPP_INLINE void forgetUnused(const Warp& warp, PackCount firstRow, PackCount stride, const Args& args,
                                          const Scratch& scratch, std::uint64_t epoch, int phase,
                                          const auto& usedPacksOf) {
    if (!stage::mustForget<P>(epoch)) return;
    const auto capacity = static_cast<PackCount>(Scratch::slicePacks(scratch.capacityPacks, scratch.ranks));
    MSCCLPP_NO_UNROLL
    for (int from = 0; from < args.team.size(); ++from) {
      std::byte* const slots = args.window.at(args.team.rank(), scratch.offset(epoch, phase, from));
      stage::forget<P>(warp, slots, firstRow, stride, usedPacksOf(from), capacity);
    }
  }

  template <class TeamType>
  static MSCCLPP_INLINE WaitSite site(const TeamType& team, std::uint32_t block, std::uint64_t epoch) {
    return WaitSite{WaitOperation::Packet, team.rank(), -1, block, epoch};
  }
};

}  // namespace mscclpp
