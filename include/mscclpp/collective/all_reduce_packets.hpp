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
    const auto warp = grid.warp();
    auto&& gridsTrace = traceOf(grid);
    auto& trace = gridsTrace;
    auto wait = tracedWait(args.wait, trace);
    using PartHere = Part<decltype(warp), decltype(trace), decltype(wait), Args>;
    // Rows go round the blocks first: a small message spreads over all SMs, each of which then has few stores to drain.
    const PartHere part{.warp = warp,
                        .firstRow = static_cast<PackCount>(grid.warpIndex() * grid.blockCount() + grid.blockIndex()),
                        .stride = static_cast<PackCount>(grid.warpCount() * grid.blockCount()),
                        .block = static_cast<std::uint32_t>(grid.blockIndex()),
                        .trace = trace,
                        .wait = wait,
                        .args = args,
                        .scratch = {args.capacityPacks, args.team.size()},
                        .message = {args.count},
                        .epoch = epoch};
    if constexpr (config.pattern == Pattern::OneShot) {
      part.oneShot(source, sink);
    } else {
      part.twoShot(source, sink);
    }
    args.epochs.advance(grid, P::nextEpoch(epoch));
  }

 private:
  /// A warp's part in one call: the rows firstRow, firstRow + stride, ... of the message or of each slice.
  template <class Warp, class Trace, class Wait, class Args>
  struct Part {
    const Warp& warp;
    PackCount firstRow;
    PackCount stride;
    std::uint32_t block;
    Trace trace;  // a reference
    Wait& wait;
    const Args& args;
    Scratch scratch;
    Message message;
    std::uint64_t epoch;

    MSCCLPP_INLINE void oneShot(const auto& source, const auto& sink) const {
      const auto& team = args.team;
      const auto packs = static_cast<PackCount>(message.packs());
      const std::size_t outgoing = scratch.offset(epoch, 0, team.rank());
      for (PackCount row = firstRow; row < stage::rowsOf<P, Warp>(packs); row += stride) {
        const auto at = stage::position<P>(warp, row, packs);
        if (!at.present) continue;
        trace.begin(TraceId::Push, row);
        const Word16 own = P::encode(warp, load(at, source, 0));
        MSCCLPP_UNROLL
        for (int i = 0; i < team.size() - 1; ++i)
          stage::send<P>(warp, args.window.at(team.peer(i), outgoing), at, own, epoch);
        trace.end(TraceId::Push);
        const TraceSpan reducing(trace, TraceId::Reduce, row);
        store(at, sink, 0, P::decode(warp, reduce(at, own)));
      }
      forgetUnused(0, [&](int) { return packs; });
    }

    MSCCLPP_INLINE void twoShot(const auto& source, const auto& sink) const {
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
            inputPacks[i] = load(positions[i], source, static_cast<PackCount>(peer) * slice);
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
        const Word16 result = reduce(at, P::encode(warp, load(at, source, sliceStart)));
        if (wait.failed()) continue;  // the result is meaningless: let the peers time out too
        MSCCLPP_UNROLL
        for (int i = 0; i < team.size() - 1; ++i)
          stage::send<P>(warp, args.window.at(team.peer(i, rotation), results), at, result, epoch);
        store(at, sink, sliceStart, P::decode(warp, result));
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
            slots[i] = slotsOf(1, peers[i]);
          }
          WaitSite from = site();
          if (batch == 1) from.peer = peers[0];
          stage::receive<P, batch>(warp, wait, from, slots, positions, epoch, words);
          MSCCLPP_UNROLL
          for (int i = 0; i < batch; ++i) {
            if (positions[i].present)
              store(positions[i], sink, static_cast<PackCount>(peers[i]) * slice, P::decode(warp, words[i]));
          }
        }
      }
      trace.end(TraceId::Collect);
      forgetUnused(0, [&](int) { return ownPacks; });
      forgetUnused(1, slicePacksOf);
    }

    /// The pack at `start` + the thread's position in its row; nothing if it has none there.
    MSCCLPP_INLINE Word16 load(const stage::RowPosition& at, const auto& source, PackCount start) const {
      return at.active ? toWord<T>(message.load(source, std::size_t{start} + at.pack)) : Word16{0, 0};
    }
    MSCCLPP_INLINE void store(const stage::RowPosition& at, const auto& sink, PackCount start,
                              const Word16& pack) const {
      if (at.active) message.store(sink, std::size_t{start} + at.pack, fromWord<T>(pack));
    }

    /// This rank's slots that `from` writes.
    MSCCLPP_INLINE std::byte* slotsOf(int phase, int from) const {
      return args.window.at(args.team.rank(), scratch.offset(epoch, phase, from));
    }
    /// The inputs of all ranks for a row, encoded, this rank's being `own`.
    MSCCLPP_INLINE Word16 reduce(const stage::RowPosition& at, const Word16& own) const {
      const auto inputsOf = [&](int from) { return slotsOf(0, from); };
      return stage::reduce<P, T, Op>(warp, wait, site(), args.team, inputsOf, at, epoch, own);
    }

    /// Now and then, forgets the slots of one phase that this call did not use. No peer writes them meanwhile: the next writer is the call after the next,
    /// which begins when this one has ended everywhere.
    MSCCLPP_INLINE void forgetUnused(int phase, const auto& usedPacksOf) const {
      if (!stage::mustForget<P>(epoch)) return;
      const auto capacity = static_cast<PackCount>(Scratch::slicePacks(scratch.capacityPacks, scratch.ranks));
      MSCCLPP_NO_UNROLL
      for (int from = 0; from < args.team.size(); ++from)
        stage::forget<P>(warp, slotsOf(phase, from), firstRow, stride, usedPacksOf(from), capacity);
    }

    MSCCLPP_INLINE WaitSite site() const { return {WaitOperation::Packet, args.team.rank(), -1, block, epoch}; }
  };
};

}  // namespace mscclpp
