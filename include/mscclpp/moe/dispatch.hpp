// Dispatch: every token travels once to each rank that has one of its experts, and is stored there for each of them.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/dispatch_call.hpp"
#include "mscclpp/moe/dispatch_copies.hpp"
#include "mscclpp/moe/dispatch_counts.hpp"
#include "mscclpp/moe/dispatch_memory.hpp"
#include "mscclpp/moe/dispatch_rows.hpp"
#include "mscclpp/moe/dispatch_steps.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_transport.hpp"

namespace mscclpp::moe {

/// Sends this rank's tokens to the ranks of their experts: once to each rank, with the choices and weights that concern
/// it, and in the order of its tokens. The receiver stores a token's row once for each of its local experts.
/// The ranks exchange counts in the kernel, from which each computes where the rows belong: the host takes no part.
///
/// run() is called by every thread of every block of `grid`, on every rank, also by one without tokens, with the same
/// dimensions and Transport; the numbers of blocks and threads, tokens, placements, sources and sinks may differ. All
/// blocks are resident at once. With Phase::Send it ends when this rank's rows are on their way, and a launch with
/// Phase::Receive, in which the routing and the rows are not read, ends the call: what is enqueued between runs while
/// they travel. Calls on the same scratch do not overlap in time. A wait that fails leaves its record in args.wait's
/// control block; the output is then meaningless. So does a call in which a rank gets more rows than its output holds,
/// on every rank, before a row is received (outcome OutputTooSmall; peer: that rank, expected: its placement.capacity,
/// seen: the rows). A rank whose output may be too small (not holdsEveryRouting()) says so at its entry, and the others
/// await its report, which is there before its rows over a StoreTransport, and one hop after its entry else.
///
/// Transport: PacketTransport, StoreTransport, BulkTransport or PortTransport. Source: see row_source.hpp; sink:
/// ExpertRowArray or the like. That a token travels once per rank, and the form with packets that is split into two,
/// are DeepEP's ideas (github.com/deepseek-ai/DeepEP).
template <class RowTransport, int Ranks = 0, class Index = std::int64_t>
struct Dispatch {
  using Transport = RowTransport;
  using Scratch = RowSlots<Transport>;
  using Args = DispatchArgs<Ranks, Transport, Index>;
  static constexpr int maxBlockThreads = 512;

  /// The scratch for rows of `rowPacks` packs of data, with or without scales.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(const Dimensions& dimensions, std::uint32_t rowPacks, bool hasScales) {
    return {.maxRows = dimensions.maxTokens,
            .rowPacks = rowPacks,
            .extraPacks = headerPacks(dimensions.topk) + (hasScales ? stepScalePacks : 0u),
            .countWords = DispatchCounts::words(dimensions),
            .flagsPerRow = 1,
            .ranks = dimensions.ranks};
  }

  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && shape.blocks <= args.workspace.blocks &&
           args.dimensions.isValid() && args.dimensions.ranks == args.team.size() && args.scratch.isValid() &&
           args.count == args.routing.tokens && args.count <= args.dimensions.maxTokens &&
           args.placement.isValid(args.dimensions) && args.sendingBlocks >= 0;
  }

  /// Words of 32 bits that each block computes with.
  static MSCCLPP_HOST_DEVICE std::size_t blockWords(const Dimensions& dimensions) {
    return Memory::blockWords(dimensions);
  }
  /// Whether a block has these words in shared memory, where a grid has it: then DispatchWorkspace::blockMemory is not
  /// used.
  static MSCCLPP_HOST_DEVICE bool sharesWords(const Dimensions& dimensions) {
    return moe::sharesWords(blockWords(dimensions));
  }
  /// Shared memory of a block, where a grid has it: for the queues of bulk copies and, unless they are too many, the
  /// words that the block computes with.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args& args, LaunchShape /*shape*/) {
    return Memory::sharedBytes(args.dimensions);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>, "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread");
    if constexpr (checked) {
      if (!checkArguments<Dispatch>(grid, args)) return false;
    }
    auto wait = args.wait;
    DispatchCall<Transport, Ranks, Index, GridType, Source, Sink> call{
        grid, args, source, sink, RowSession<Ranks, Scratch, GridType, BoundedWait>(grid, args, wait), wait, true};
    return run(call);
  }

 private:
  using Memory = DispatchMemory<Transport, Ranks>;

  template <class Call>
  static MSCCLPP_INLINE bool run(Call& call) {
    const Args& args = call.args;
    auto& session = call.session;
    const bool sends = args.phase != Phase::Receive;
    const bool receives = args.phase != Phase::Send;
    const auto work = call.work();
    const auto& share = work.share;
    const auto end = [&] {
      if (!receives) return session.suspend();
      return session.finish([&](int from) { return call.table().count(from, DispatchCounts::tokens); });
    };
    // Once the routing is known.
    const auto announce = [&] {
      if (!receives) counts::stampHandle(call, Handle::incomplete);  // it may have the stamp of an earlier call
      session.announce([&](int to, std::uint32_t word) { return counts::countFor(call, to, word); });
    };
    if constexpr (Call::countsInBlocks) {
      // Packets leave before this rank knows that others have entered; stores need it.
      const auto prepare = [&] {
        call.routing().make(args.routing);
        if (session.hasStopped()) return false;
        announce();
        return true;
      };
      if (sends ? !steps::sendAll(call, share.first(), share.stride(), prepare) : session.hasStopped()) return false;
    } else {
      if (session.hasStopped()) return false;
      if (sends) {
        if constexpr (Call::Session::entersEarly) session.enter();
        if constexpr (Call::canSendEarly) {
          if (!wholeRows::sendEarly(call, work)) return end();
        }
        const bool isLaidOut = layOutRouting(
            call.grid, args.routing, args.dimensions, args.workspace.layout, call.blockMemory(),
            [&](std::uint32_t blocks) { return session.syncBlocks(*args.workspace.barrier, blocks); },
            [&](std::uint32_t blocks) { return session.passGate(*args.workspace.gate, blocks); });
        if (!isLaidOut) return end();
        announce();
      }
    }
    if constexpr (Call::storesOwnRows) {
      if (!session.awaitEntries()) return end();
    }
    // Blocks that send to other ranks only need not know where rows belong.
    if ((receives || Call::storesOwnRows) && work.destinations != steps::Destinations::Remote) {
      call.table().receive([&](int from, std::uint32_t word) { return session.awaitCount(from, word); });
      if (session.blockFailed()) return end();
      call.fits = counts::placeRows(call);
    }
    if constexpr (Call::storesOwnRows) {
      if (share.sends) sendRows(call, work);
    }
    if constexpr (Call::copiesRows) {
      if (sends && call.fits) wholeRows::storeOwn(call, args.phase);
    }
    if (share.receives && counts::allFit(call) && call.fits) receive(call, share.first(), share.stride());
    if (receives && call.fits) counts::stampHandle(call, args.handle.stampOf(args.count));
    return end();
  }

  template <class Call>
  static MSCCLPP_INLINE void sendRows(Call& call, const typename Call::Work& work) {
    if (call.session.failed()) return;
    if constexpr (Call::copiesRows) {
      wholeRows::copyAll(call, work.share.first(), work.share.stride());
    } else {
      wholeRows::sendAll(call, work.destinations, call.isEarly(), work.share.first(), work.share.stride());
    }
  }
  template <class Call>
  static MSCCLPP_INLINE void receive(Call& call, std::uint32_t first, std::uint32_t stride) {
    if constexpr (Transport::hasRowFlags) {
      wholeRows::receiveAll(call, first, stride);
    } else {
      steps::receiveAll(call, first, stride);
    }
  }
};

}  // namespace mscclpp::moe
