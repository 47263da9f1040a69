// One call of dispatch as a thread sees it: its arguments and session, the routing and the table of its block, and the
// parts of a step.
#pragma once

#include "mscclpp/arch/warp.hpp"
#include "mscclpp/basic/bulk_copy.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/block_routing.hpp"
#include "mscclpp/moe/block_words.hpp"
#include "mscclpp/moe/dispatch_memory.hpp"
#include "mscclpp/moe/routing_layout.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_source.hpp"
#include "mscclpp/moe/row_table.hpp"
#include "mscclpp/moe/step_sender.hpp"
#include "mscclpp/moe/token_choices.hpp"

namespace mscclpp::moe {

/// Made by every thread of the grid, in Dispatch::run(). The parts of the call are functions of it: dispatch_counts.hpp
/// (counts and placement), dispatch_steps.hpp (the low-latency form), dispatch_rows.hpp (the bandwidth form) and
/// dispatch_copies.hpp (its bulk copies), which send and store the steps of rows by step_sender.hpp and
/// step_storer.hpp.
template <class RowTransport, int Ranks, class Index, class GridType, class RowSource, class RowSink>
struct DispatchCall {
  using Transport = RowTransport;
  using Source = RowSource;
  using Args = DispatchArgs<Ranks, Transport, Index>;
  using Memory = DispatchMemory<Transport, Ranks>;
  using Session = RowSession<Ranks, RowSlots<Transport>, GridType, BoundedWait>;
  using Warp = typename Session::Warp;
  using Lanes = ChoiceLanes<Warp>;
  static constexpr int width = Session::width;
  static constexpr int n = Session::packsPerLane;
  /// Extra packs of a step for each lane: lane l has l, l + width, ...
  static constexpr int extras =
      (static_cast<int>(headerPacks(maxTopk)) + (Source::hasScales ? stepScalePacks : 0) + width - 1) / width;
  static constexpr bool countsInBlocks = Memory::countsInBlocks;
  /// Whether the rows from this rank to itself are stored as they are sent, instead of passing through slots: the
  /// sender knows where they belong.
  static constexpr bool storesOwnRows = Transport::hasRowFlags;
  /// Whether the rows to other ranks are sent by bulk copies.
  static constexpr bool copiesRows =
      Transport::usesBulkCopies && arch::hasBulkCopies && SharedMemoryGrid<GridType> && requires(const Source& from) {
    from.row(0u);
  };
  /// Whether blocks can send rows while others lay out the routing.
  static constexpr bool canSendEarly = Session::entersEarly && !copiesRows;

  const GridType& grid;
  const Args& args;
  const Source& source;
  const RowSink& sink;
  Session session;
  BoundedWait& wait;
  bool fits;  ///< this rank's output holds its rows

  // ---- routing ----

  /// The words that this block computes with.
  MSCCLPP_INLINE std::uint32_t* blockMemory() const {
    return wordsOfBlock(grid, Memory::blockWords(args.dimensions), Memory::queueBytes(), args.workspace.blockMemory);
  }
  MSCCLPP_INLINE auto table() const {
    return RowTable<GridType, Warp>(grid, session.warp(), args.dimensions, blockMemory());
  }
  MSCCLPP_INLINE auto routing() const {
    return BlockRouting<GridType>(grid, args.dimensions, blockMemory() + rowTableWords(args.dimensions));
  }
  /// The index of this rank's token among those for a rank, -1 if the rank does not get it.
  MSCCLPP_INLINE std::int32_t indexAtRank(std::uint32_t token, int rank) const {
    if constexpr (countsInBlocks) {
      return routing().indexAtRank(token, rank);
    } else {
      return args.handle.indexAt(args.dimensions, token, rank);
    }
  }
  /// The choices of this rank's token. Called by all lanes.
  MSCCLPP_INLINE Lanes choicesOf(std::uint32_t token) const {
    return Lanes::template load<countsInBlocks>(
        session.warp(), args.routing, args.dimensions, token, [&](std::size_t at, std::uint32_t expert) {
          if constexpr (countsInBlocks) {
            return routing().indexAtExpert(token, expert);
          } else {
            return static_cast<std::uint32_t>(args.workspace.layout.expertIndex[at]);  // -1 is noExpert
          }
        });
  }
  /// The row whose slots a token's row travels in, `row` being the token's among those for the rank. Where rows have
  /// flags, a row may be sent before the latter is known.
  static MSCCLPP_INLINE std::uint32_t placeOf(std::uint32_t token, std::uint32_t row) {
    return Transport::hasRowFlags ? token : row;
  }
  /// Calls f(rank) for the other ranks that get a token, of which only the choices are known. Called by all lanes.
  template <class F>
  MSCCLPP_INLINE void forEachOtherRank(std::uint32_t token, const F& f) const {
    const auto perRank = static_cast<Index>(args.dimensions.expertsPerRank());
    Index ranks[Lanes::held];
    MSCCLPP_UNROLL
    for (int h = 0; h < Lanes::held; ++h) {
      const int choice = Lanes::choiceOf(session.warp(), h);
      const std::size_t at =
          std::size_t{token} * static_cast<std::size_t>(args.dimensions.topk) + static_cast<std::size_t>(choice);
      const Index expert = choice < args.dimensions.topk ? args.routing.experts[at] : Index{-1};
      ranks[h] = expert >= 0 ? expert / perRank : Index{-1};  // of no rank if there is no such expert
    }
    MSCCLPP_NO_UNROLL
    for (int i = 0; i < args.team.size() - 1; ++i) {
      const int to = args.team.peer(i);
      bool gets = false;
      MSCCLPP_UNROLL
      for (int h = 0; h < Lanes::held; ++h) gets |= ranks[h] == static_cast<Index>(to);
      if (session.warp().any(gets)) f(to);
    }
  }
  /// Calls f(rank, row) for the ranks that get a token. Called by any lanes of a warp, also by one alone: it has no
  /// operation of the warp.
  template <class F>
  MSCCLPP_INLINE void forEachRank(std::uint32_t token, const F& f) const {
    MSCCLPP_NO_UNROLL
    for (int i = 0; i < args.team.size(); ++i) {
      const int to = session.rankInOrder(i);
      const std::int32_t row = indexAtRank(token, to);
      if (row >= 0) f(to, static_cast<std::uint32_t>(row));
    }
  }

  /// Whether this block sends rows early, since it has no part in the layout of the routing.
  MSCCLPP_INLINE bool isEarly() const {
    if constexpr (!canSendEarly) return false;
    if (!args.sendsEarly || args.team.size() == 1) return false;
    const RoutingSegments segments(args.routing.tokens, static_cast<std::uint32_t>(grid.blockCount()));
    return static_cast<std::uint32_t>(grid.blockIndex()) >= segments.count;
  }

  /// What a warp does: it sends rows to some of the ranks, and receives rows. With blocks that only send, the others
  /// store the rows from this rank to itself.
  struct Work {
    steps::Destinations destinations;
    typename Session::Share share;
  };
  MSCCLPP_INLINE Work work() const {
    const int wanted = copiesRows ? 0 : args.sendingBlocks;
    Work work{steps::Destinations::All, session.share(args.phase, mostSenders(), wanted)};
    if (session.sendingBlocks(args.phase, wanted) == 0) return work;
    work.destinations = work.share.sends ? steps::Destinations::Remote : steps::Destinations::Own;
    work.share.sends = true;
    return work;
  }

  /// The most warps of a block that send.
  MSCCLPP_INLINE int mostSenders() const {
    if constexpr (copiesRows) return Transport::queues;
    return grid.warpCount();
  }

  // ---- parts of a step: packs of data, and extra packs for the header of the row and the scales ----

  MSCCLPP_INLINE std::uint32_t packsOf(std::uint32_t step) const {
    const std::uint32_t left = args.scratch.rowPacks - step * stepPacks;
    return left < stepPacks ? left : static_cast<std::uint32_t>(stepPacks);
  }
  /// The pack of the calling lane's words[i], in its step.
  MSCCLPP_INLINE std::uint32_t packOf(int i) const {
    return static_cast<std::uint32_t>(i * width + session.warp().rank());
  }
  MSCCLPP_INLINE std::uint32_t header() const { return headerPacks(args.dimensions.topk); }
  /// Extra packs of a step with this many packs.
  MSCCLPP_INLINE std::uint32_t extrasOf(std::uint32_t packs) const {
    constexpr std::uint32_t perScalePack = 4 * groupPacks;
    return header() + (Source::hasScales ? (packs + perScalePack - 1) / perScalePack : 0);
  }
  MSCCLPP_INLINE std::uint32_t extraOf(int q) const {
    return static_cast<std::uint32_t>(q * width + session.warp().rank());
  }
};

}  // namespace mscclpp::moe
