// All-reduce of messages that fit in scratch, by packets that carry their own arrival flags: no barrier, no fence, no
// communication between threads.
#pragma once

#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// Scratch of a packet all-reduce, double-buffered: calls alternate between two halves. Two suffice: a rank that enters
/// call k has received data of call k-1 from every peer, so each peer had entered call k-1 and hence completed call
/// k-2, including its reads and re-poisoning. docs/memory_model.md has the proof.
template <class P, Pattern pattern>
struct PacketScratch {
  static constexpr int initialByte = P::initialByte;  ///< value of every byte of the window before the first call
  static constexpr std::uint64_t firstEpoch = 1;

  std::size_t capacityPacks;  ///< packs of the longest message
  int ranks;

  /// Packs that each rank reduces in a message of `packs` packs. Two-shot slices start on 128-byte boundaries of the
  /// message.
  static MSCCLPP_HOST_DEVICE std::size_t slicePacks(std::size_t packs, int ranks) {
    return pattern == Pattern::OneShot ? packs : roundUp(ceilDivide(packs, static_cast<std::size_t>(ranks)), 8);
  }
  MSCCLPP_HOST_DEVICE std::size_t arrayBytes() const { return P::bytes(slicePacks(capacityPacks, ranks)); }
  MSCCLPP_HOST_DEVICE std::size_t phaseBytes() const { return arrayBytes() * static_cast<std::size_t>(ranks); }
  MSCCLPP_HOST_DEVICE std::size_t halfBytes() const { return phaseBytes() * (pattern == Pattern::OneShot ? 1 : 2); }
  MSCCLPP_HOST_DEVICE std::size_t windowBytes() const { return halfBytes() * 2; }

  /// Offset in the window, in bytes, of the slots that rank `from` writes in `phase` (0: inputs, 1: results) of a call.
  MSCCLPP_HOST_DEVICE std::size_t offset(std::uint64_t epoch, int phase, int from) const {
    return (epoch & 1) * halfBytes() + static_cast<std::size_t>(phase) * phaseBytes() +
           static_cast<std::size_t>(from) * arrayBytes();
  }
};

/// AllReduce by packets; collective/all_reduce.hpp documents the parameters.
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
    auto&& gridTrace = traceOf(grid);
    auto& trace = gridTrace;
    auto wait = tracedWait(args.wait, trace);
    using ThisWarpTask = WarpTask<decltype(warp), decltype(trace), decltype(wait), Args>;
    // Consecutive rows go to different blocks: a small message spreads over all SMs, so each has few stores to drain.
    const ThisWarpTask task{
        .warp = warp,
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
      task.oneShot(source, sink);
    } else {
      task.twoShot(source, sink);
    }
    args.epochs.advance(grid, P::nextEpoch(epoch));
  }

 private:
  /// The part of a warp in one call: rows firstRow, firstRow + stride, ... of the message (one-shot) or of each slice.
  template <class Warp, class Trace, class Wait, class Args>
  struct WarpTask {
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
        const Word128 own = P::encode(warp, load(at, source, 0));
        MSCCLPP_UNROLL
        for (int i = 0; i < team.size() - 1; ++i)
          stage::send<P>(warp, args.window.at(team.peer(i), outgoing), at, own, epoch);
        trace.end(TraceId::Push);
        const TraceSpan reducing(trace, TraceId::Reduce, row);
        store(at, sink, 0, P::decode(warp, reduce(at, own)));
      }
      clearUnused(0, [&](int) { return packs; });
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

      // With a fixed number of ranks, the accesses of a row for all peers are in flight together.
      constexpr int batch = ranks > 1 ? ranks - 1 : 1;
      // Scatter: each peer gets its slice of this rank's input.
      const std::size_t inputs = scratch.offset(epoch, 0, team.rank());
      trace.begin(TraceId::Push, firstRow);
      for (PackCount row = firstRow; row < rows; row += stride) {
        MSCCLPP_UNROLL
        for (int first = 0; first < team.size() - 1; first += batch) {
          stage::RowPosition positions[batch];
          Word128 inputPacks[batch];
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
      // Reduce this rank's slice and send each result to all peers at once.
      const std::size_t results = scratch.offset(epoch, 1, team.rank());
      const PackCount sliceStart = static_cast<PackCount>(team.rank()) * slice;
      const PackCount ownPacks = slicePacksOf(team.rank());
      trace.begin(TraceId::Reduce, firstRow);
      for (PackCount row = firstRow; row < stage::rowsOf<P, Warp>(ownPacks); row += stride) {
        const auto at = stage::position<P>(warp, row, ownPacks);
        if (!at.present) continue;
        const Word128 result = reduce(at, P::encode(warp, load(at, source, sliceStart)));
        if (wait.failed()) continue;  // the result is meaningless: do not send it, so that the peers time out too
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
          Word128 words[batch] = {};
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
      clearUnused(0, [&](int) { return ownPacks; });
      clearUnused(1, slicePacksOf);
    }

    /// The pack at `start` + the thread's position in its row; zeros if the thread has none.
    MSCCLPP_INLINE Word128 load(const stage::RowPosition& at, const auto& source, PackCount start) const {
      return at.active ? toWord<T>(message.load(source, std::size_t{start} + at.pack)) : Word128{0, 0};
    }
    MSCCLPP_INLINE void store(const stage::RowPosition& at, const auto& sink, PackCount start,
                              const Word128& pack) const {
      if (at.active) message.store(sink, std::size_t{start} + at.pack, fromWord<T>(pack));
    }

    /// The slots of this rank that rank `from` writes.
    MSCCLPP_INLINE std::byte* slotsOf(int phase, int from) const {
      return args.window.at(args.team.rank(), scratch.offset(epoch, phase, from));
    }
    /// Receives the peers' inputs for a row and reduces them with this rank's, `own`; all encoded.
    MSCCLPP_INLINE Word128 reduce(const stage::RowPosition& at, const Word128& own) const {
      const auto inputsOf = [&](int from) { return slotsOf(0, from); };
      return stage::reduce<P, T, Op>(warp, wait, site(), args.team, inputsOf, at, epoch, own);
    }

    /// Periodically clears the slots of a phase that this call did not use. No peer writes them at the time: the next
    /// writer is the call after the next, which starts after this one has completed on all ranks.
    MSCCLPP_INLINE void clearUnused(int phase, const auto& usedPacksOf) const {
      if (!stage::mustClear<P>(epoch)) return;
      const auto capacity = static_cast<PackCount>(Scratch::slicePacks(scratch.capacityPacks, scratch.ranks));
      MSCCLPP_NO_UNROLL
      for (int from = 0; from < args.team.size(); ++from)
        stage::clear<P>(warp, slotsOf(phase, from), firstRow, stride, usedPacksOf(from), capacity);
    }

    MSCCLPP_INLINE WaitSite site() const { return {WaitOperation::Packet, args.team.rank(), -1, block, epoch}; }
  };
};

}  // namespace mscclpp
