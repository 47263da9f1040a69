// Dispatch: every token travels once to each rank that has one of its experts, and is stored there for each of them.
#pragma once

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/block_routing.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/routing.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_table.hpp"
#include "mscclpp/moe/row_transport.hpp"
#include "mscclpp/moe/token_choices.hpp"

namespace mscclpp::moe {

/// Memory of this rank that a dispatch computes with; used by one call at a time.
struct DispatchWorkspace {
  RoutingLayout layout;  ///< rankIndex is the handle's; not used over a PacketTransport, nor is the barrier
  GridBarrier* barrier;  ///< zero before the first call
  /// [blocks][Dispatch::blockWords()]; not used where the blocks have as much shared memory: sharedBytes()
  std::uint32_t* blockMemory;
  int blocks;  ///< the most blocks of a launch
};

/// The arguments of a Dispatch. `count` is the number of this rank's tokens, which may differ between the ranks.
template <int Ranks, class Transport, class Index>
struct DispatchArgs : CollectiveArgs<Ranks, RowSlots<Transport>> {
  Dimensions dimensions;
  Routing<Index> routing;
  DispatchWorkspace workspace;
  ExpertPlacement placement;
  Handle handle;
  Phase phase;
};

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
/// Transport: PacketTransport, StoreTransport or BulkTransport. Source: see row_source.hpp; sink: ExpertRowArray or the
/// like. That a token travels once per rank, and the form with packets that is split into two, are DeepEP's ideas
/// (github.com/deepseek-ai/DeepEP).
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
            .ranks = dimensions.ranks};
  }

  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && shape.blocks <= args.workspace.blocks &&
           args.dimensions.isValid() && args.dimensions.ranks == args.team.size() && args.scratch.isValid() &&
           args.count == args.routing.tokens && args.count <= args.dimensions.maxTokens &&
           args.placement.isValid(args.dimensions);
  }

  /// Words of 32 bits that each block computes with.
  static MSCCLPP_HOST_DEVICE std::size_t blockWords(const Dimensions& dimensions) {
    return rowTableWords(dimensions) + (countsInBlocks ? blockRoutingWords(dimensions) : 0);
  }
  /// Shared memory of a block, where a grid has it: for the queues of bulk copies and, unless they are too many, the
  /// words that the block computes with.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args& args, LaunchShape /*shape*/) {
    return queueBytes() + (sharesWords(args.dimensions) ? blockWords(args.dimensions) * sizeof(std::uint32_t) : 0);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>, "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread");
    if constexpr (checked) {
      if (!checkArguments<Dispatch>(grid, args)) return false;
    }
    auto wait = args.wait;
    Call<GridType, Source, Sink> call{
        grid, args, source, sink, RowSession<Ranks, Scratch, GridType, BoundedWait>(grid, args, wait), wait, true};
    return call.run();
  }

 private:
  static constexpr int destinations = Ranks > 0 ? Ranks : maxTeamSize;

  using Counts = DispatchCounts;

  /// Whether each block counts the tokens of the experts for itself (BlockRouting), instead of all blocks together and
  /// with a barrier: for the few tokens that travel as packets.
  static constexpr bool countsInBlocks = !Transport::hasRowFlags;
  /// More words of a block than this are in global memory.
  static constexpr std::size_t mostSharedBytes = 48 << 10;
  static MSCCLPP_HOST_DEVICE bool sharesWords(const Dimensions& dimensions) {
    return blockWords(dimensions) * sizeof(std::uint32_t) <= mostSharedBytes;
  }
  static MSCCLPP_HOST_DEVICE constexpr std::size_t queueBytes() {
    if constexpr (Transport::usesBulkCopies) {
      return Transport::queues * sizeof(typename Transport::template Queue<destinations>::Scratch);
    } else {
      return 0;
    }
  }

  template <class GridType, class Source, class Sink>
  struct Call {
    using Session = RowSession<Ranks, Scratch, GridType, BoundedWait>;
    using Warp = typename Session::Warp;
    static constexpr int width = Session::width;
    static constexpr int n = Session::packsPerLane;
    using Lanes = ChoiceLanes<Warp>;
    /// Extra packs of a step for each lane: lane l has l, l + width, ...
    static constexpr int extras =
        (static_cast<int>(headerPacks(maxTopk)) + (Source::hasScales ? stepScalePacks : 0) + width - 1) / width;

    const GridType& grid;
    const Args& args;
    const Source& source;
    const Sink& sink;
    Session session;
    BoundedWait& wait;
    bool fits;  ///< this rank's output holds its rows

    /// Whether the rows from this rank to itself are stored as they are sent, instead of passing through slots: the
    /// sender knows where they belong.
    static constexpr bool storesOwnRows = Transport::hasRowFlags;
    /// Whether the rows to other ranks are sent by bulk copies.
    static constexpr bool copiesRows =
        Transport::usesBulkCopies && arch::hasBulkCopies && SharedMemoryGrid<GridType> && requires(const Source& from) {
      from.row(0u);
    };

    MSCCLPP_INLINE bool run() {
      const bool sends = args.phase != Phase::Receive;
      if constexpr (countsInBlocks) {
        if (sends) routing().make(args.routing);  // while the epoch is loaded
      }
      if (session.hasStopped()) return false;
      const bool receives = args.phase != Phase::Send;
      const auto share = session.share(args.phase, mostSenders());
      const auto end = [&] {
        if (!receives) return session.suspend();
        return session.finish([&](int from) { return table().count(from, Counts::tokens); });
      };
      if (sends) {
        if constexpr (!countsInBlocks) {
          const bool isLaidOut = layOutRouting(grid, args.routing, args.dimensions, args.workspace.layout,
                                               [&] { return session.syncGrid(*args.workspace.barrier); });
          if (!isLaidOut) return end();
          session.enter();
        }
        session.sendCounts([&](int to, std::uint32_t word) { return countFor(to, word); });
      }
      // Packets leave before this rank knows that others have entered; stores need it.
      if (share.sends && !storesOwnRows) send(share.first, share.stride);
      if (receives || storesOwnRows) {
        if constexpr (storesOwnRows) {
          if (!session.awaitEntries()) return end();
        }
        table().receive([&](int from, std::uint32_t word) { return session.awaitCount(from, word); });
        if (session.blockFailed()) return end();
        fits = placeRows();
      }
      if (share.sends && storesOwnRows) send(share.first, share.stride);
      if constexpr (copiesRows) {
        if (sends && fits) storeOwnRows(args.phase);
      }
      if (share.receives && allFit() && fits) receive(share.first, share.stride);
      return end();
    }

    MSCCLPP_INLINE std::uint32_t countFor(int to, std::uint32_t word) const {
      if (word == Counts::rowLimit) {
        return args.placement.holdsEveryRouting(args.dimensions) ? Counts::noLimit : args.placement.capacity;
      }
      const auto expert =
          static_cast<std::uint32_t>(to * args.dimensions.expertsPerRank()) + word - Counts::firstExpert;
      if constexpr (countsInBlocks) {
        const std::uint32_t tokens = args.routing.tokens;
        return word == Counts::tokens ? routing().countOfRank(to, tokens) : routing().countOfExpert(expert, tokens);
      } else {
        const auto& layout = args.workspace.layout;
        return word == Counts::tokens ? layout.tokensPerRank[to] : layout.tokensPerExpert[expert];
      }
    }

    // ---- routing ----

    /// The words that this block computes with.
    MSCCLPP_INLINE std::uint32_t* blockMemory() const {
      if constexpr (SharedMemoryGrid<GridType>) {
        if (sharesWords(args.dimensions)) {
          return reinterpret_cast<std::uint32_t*>(grid.sharedMemory() + queueBytes());
        }
      }
      return args.workspace.blockMemory + static_cast<std::size_t>(grid.blockIndex()) * blockWords(args.dimensions);
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

    // ---- sending ----

    MSCCLPP_INLINE int mostSenders() const {
      if constexpr (copiesRows) return Transport::queues;
      return grid.warpCount();
    }
    /// Sends the items first, first + stride, ...: the steps of a row, or the rows.
    MSCCLPP_INLINE void send(std::uint32_t first, std::uint32_t stride) {
      if constexpr (!countsInBlocks) {  // otherwise nothing has waited yet
        if (session.failed()) return;
      }
      if constexpr (copiesRows) {
        copyRows(first, stride);
        return;
      }
      const std::uint32_t steps = args.scratch.steps();
      const std::uint32_t perToken = Transport::hasRowFlags ? 1 : steps;
      const auto items = static_cast<std::uint32_t>(args.count) * perToken;
      MSCCLPP_NO_UNROLL
      for (std::uint32_t item = first; item < items; item += stride) {
        const std::uint32_t token = item / perToken;
        if constexpr (Transport::hasRowFlags) {
          std::uint32_t own[Lanes::held];
          MSCCLPP_NO_UNROLL
          for (std::uint32_t step = 0; step < steps; ++step) sendStep(token, step, step == 0, own);
          publish(token);
        } else {
          std::uint32_t none[Lanes::held];
          if (item % perToken == 0) storeRankIndex(token);
          sendStep(token, item % perToken, true, none);
        }
      }
    }
    /// For combine: layOutRouting() does it otherwise.
    MSCCLPP_INLINE void storeRankIndex(std::uint32_t token) const {
      MSCCLPP_NO_UNROLL
      for (int rank = session.warp().rank(); rank < args.team.size(); rank += width) {
        args.handle.rankIndex[std::size_t{token} * static_cast<std::size_t>(args.team.size()) +
                              static_cast<std::size_t>(rank)] = indexAtRank(token, rank);
      }
    }
    /// Announces a token's row to the other ranks.
    MSCCLPP_INLINE void publish(std::uint32_t token) const {
      forEachRank(token, [&](int to, std::uint32_t row) {
        if (to != args.team.rank()) session.publish(to, row);
      });
    }
    /// Stores the rows from this rank to itself, in all warps that do not send, or in all if every one does.
    MSCCLPP_INLINE void storeOwnRows(Phase phase) {
      const int warps = grid.warpCount();
      const int others = warps - session.senders(phase, mostSenders());
      const int first = others > 0 ? grid.warpIndex() - (warps - others) : grid.warpIndex();
      if (first < 0) return;
      const auto blocks = static_cast<std::uint32_t>(grid.blockCount());
      const std::uint32_t stride = static_cast<std::uint32_t>(others > 0 ? others : warps) * blocks;
      MSCCLPP_NO_UNROLL
      for (auto token = static_cast<std::uint32_t>(first) * blocks + static_cast<std::uint32_t>(grid.blockIndex());
           token < args.count; token += stride) {
        std::uint32_t own[Lanes::held];
        if (args.handle.indexAt(args.dimensions, token, args.team.rank()) < 0) continue;
        MSCCLPP_NO_UNROLL
        for (std::uint32_t step = 0; step < args.scratch.steps(); ++step) {
          sendStep<Part::Own>(token, step, step == 0, own);
        }
      }
    }
    /// send() by bulk copies: the rows first, first + stride, ... to other ranks. The lanes send headers and scales.
    MSCCLPP_INLINE void copyRows(std::uint32_t first, std::uint32_t stride) {
      using Queue = typename Transport::template Queue<destinations>;
      const Warp& warp = session.warp();
      Queue queue(warp, reinterpret_cast<typename Queue::Scratch*>(grid.sharedMemory())[grid.warpIndex()]);
      const std::uint32_t steps = args.scratch.steps();
      const auto tokens = static_cast<std::uint32_t>(args.count);
      const std::size_t bytes = std::size_t{args.scratch.rowPacks} * sizeof(Word128);
      const auto forEachOfBatch = [&](std::uint32_t begin, const auto& f) {
        for (std::uint32_t i = 0; i < Transport::rowsAtOnce; ++i) {
          if (begin + i * stride < tokens) f(begin + i * stride);
        }
      };
      for (std::uint32_t begin = first; begin < tokens; begin += Transport::rowsAtOnce * stride) {
        forEachOfBatch(begin, [&](std::uint32_t token) {
          const auto forEachDestination = [&](const auto& f) {
            forEachRank(token, [&](int to, std::uint32_t row) {
              if (to != args.team.rank()) f(session.slotAt(to, args.scratch.dataSlot(row, 0)));
            });
          };
          queue.copyToEach(warp, forEachDestination, source.row(token), bytes, wait);
        });
        // While the copies are under way.
        forEachOfBatch(begin, [&](std::uint32_t token) {
          std::uint32_t none[Lanes::held];
          MSCCLPP_NO_UNROLL
          for (std::uint32_t step = 0; step < steps; ++step) sendStep<Part::Remote>(token, step, step == 0, none);
        });
        Transport::complete(queue, warp, wait);
        if (warp.any(hasFailed(wait))) break;
        forEachOfBatch(begin, [&](std::uint32_t token) { publish(token); });
      }
      queue.finish(warp, wait);
    }
    /// Calls f(rank, row) for the ranks that get a token.
    template <class F>
    MSCCLPP_INLINE void forEachRank(std::uint32_t token, const F& f) const {
      MSCCLPP_NO_UNROLL
      for (int i = 0; i < args.team.size(); ++i) {
        const int to = session.rankInOrder(i);
        const std::int32_t row = indexAtRank(token, to);
        if (row >= 0) f(to, static_cast<std::uint32_t>(row));
      }
    }
    MSCCLPP_INLINE std::uint32_t packsOf(std::uint32_t step) const {
      const std::uint32_t left = args.scratch.rowPacks - step * stepPacks;
      return left < stepPacks ? left : static_cast<std::uint32_t>(stepPacks);
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

    /// The ranks to which sendStep() sends: all, those but this one, of which the data is copied, or this one alone.
    enum class Part { All, Remote, Own };
    /// own: the rows of the token on this rank, which its first step determines.
    template <Part part = Part::All>
    MSCCLPP_INLINE void sendStep(std::uint32_t token, std::uint32_t step, bool hasHeader,
                                 std::uint32_t (&own)[Lanes::held]) {
      const std::uint32_t packs = packsOf(step);
      int scalePacks[extras];
      MSCCLPP_UNROLL
      for (int q = 0; q < extras; ++q) scalePacks[q] = static_cast<int>(extraOf(q) - header());
      Word128 words[n] = {};
      Word128 scales[extras] = {};
      source.load(session.warp(), token, step * stepPacks, part == Part::Remote ? 0 : packs, words, scalePacks, scales);
      TokenChoice choices[extras][2];
      if (hasHeader) {  // while the row is loaded
        const Lanes lanes = choicesOf(token);
        MSCCLPP_UNROLL
        for (int q = 0; q < extras; ++q) {
          const auto x = static_cast<int>(extraOf(q));
          choices[q][0] = lanes.at(session.warp(), 2 * x - 1);
          choices[q][1] = lanes.at(session.warp(), 2 * x);
          if (x == 0) choices[q][0] = {-1, token, 0};
        }
      }
      forEachRank(token, [&](int to, std::uint32_t row) {
        if (part != Part::All && (to == args.team.rank()) != (part == Part::Own)) return;
        const auto extra = [&](int q) {
          if (!hasHeader || extraOf(q) >= header()) return scales[q];
          return Word128{choices[q][0].word(extraOf(q) == 0, to), choices[q][1].word(false, to)};
        };
        if constexpr (storesOwnRows && part != Part::Remote) {
          if (to == args.team.rank()) {
            Word128 all[n + extras];
            MSCCLPP_UNROLL
            for (int i = 0; i < n + extras; ++i) all[i] = i < n ? words[i < n ? i : 0] : extra(i < n ? 0 : i - n);
            if (fits) storeStep(to, row, step, hasHeader, all, own);
            return;
          }
        }
        MSCCLPP_UNROLL
        for (int q = 0; q < extras; ++q) {
          const std::uint32_t x = extraOf(q);
          if (x < extrasOf(packs) && (hasHeader || x >= header())) {
            session.send(to, args.scratch.extraSlot(row, step, x), extra(q));
          }
        }
        if constexpr (part == Part::All) {
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) {
            const auto pack = static_cast<std::uint32_t>(i * width + session.warp().rank());
            if (pack < packs) session.send(to, args.scratch.dataSlot(row, step * stepPacks + pack), words[i]);
          }
        }
      });
    }

    // ---- placement ----

    /// Computes where the rows belong, and reports how many there are. Called by all threads. Returns whether the
    /// output holds them: the same in all lanes of a warp.
    MSCCLPP_INLINE bool placeRows() {
      const auto block = grid.block();
      const std::uint32_t end = table().make(args.placement);
      if (grid.blockIndex() == 0) {
        MSCCLPP_NO_UNROLL
        for (int from = block.rank(); from < args.team.size(); from += block.size()) {
          args.handle.received[from] = table().count(from, Counts::tokens);
        }
        if (block.rank() == 0) *args.handle.stamp = args.handle.stampOf(args.count);
        session.report(end);
      }
      return end <= args.placement.capacity;
    }
    /// Waits until every rank has reported whether its output holds its rows. Called by all lanes of a warp; the same
    /// in all of them.
    MSCCLPP_INLINE bool allFit() {
      MSCCLPP_NO_UNROLL
      for (int from = session.warp().rank(); from < args.team.size(); from += width) {
        const std::uint32_t limit = table().count(from, Counts::rowLimit);
        if (limit == Counts::noLimit) continue;
        const std::uint32_t rows = session.awaitReport(from);
        if (hasFailed(wait) || rows <= limit) continue;
        const WaitSite site{WaitOperation::Call, args.team.rank(), from, static_cast<std::uint32_t>(grid.blockIndex()),
                            limit};
        wait.fail(site, WaitOutcome::OutputTooSmall, rows);
      }
      return !session.warp().any(hasFailed(wait));
    }

    // ---- receiving ----

    MSCCLPP_INLINE void receive(std::uint32_t first, std::uint32_t stride) {
      const std::uint32_t steps = args.scratch.steps();
      const std::uint32_t perRow = Transport::hasRowFlags ? 1 : steps;
      std::uint32_t item = first;
      // This rank's own rows arrive first.
      MSCCLPP_NO_UNROLL
      for (int i = args.team.size() - (storesOwnRows ? 2 : 1); i >= 0; --i) {
        const int from = session.rankInOrder(i);
        const std::uint32_t items = table().count(from, Counts::tokens) * perRow;
        MSCCLPP_NO_UNROLL
        for (; item < items; item += stride) {
          const std::uint32_t row = item / perRow;
          std::uint32_t positions[Lanes::held];
          if constexpr (Transport::hasRowFlags) {
            session.await(from, row);
            if (session.warp().any(hasFailed(wait))) return;
            MSCCLPP_NO_UNROLL
            for (std::uint32_t step = 0; step < steps; ++step) {
              if (!receiveStep(from, row, step, step == 0, positions)) return;
            }
          } else {
            if (!receiveStep(from, row, item % perRow, true, positions)) return;
          }
        }
        item -= items;
      }
    }

    /// positions: the rows in which the token belongs; read from the header, if the step has one.
    MSCCLPP_INLINE bool receiveStep(int from, std::uint32_t row, std::uint32_t step, bool hasHeader,
                                    std::uint32_t (&positions)[Lanes::held]) {
      const std::uint32_t packs = packsOf(step);
      int ranks[n + extras];
      std::uint32_t slots[n + extras];
      bool isPresent[n + extras];
      Word128 words[n + extras] = {};
      MSCCLPP_UNROLL
      for (int i = 0; i < n + extras; ++i) {
        ranks[i] = from;
        if (i < n) {
          const auto pack = static_cast<std::uint32_t>(i * width + session.warp().rank());
          slots[i] = args.scratch.dataSlot(row, step * stepPacks + pack);
          isPresent[i] = pack < packs;
        } else {
          const std::uint32_t x = extraOf(i - n);
          slots[i] = args.scratch.extraSlot(row, step, x);
          isPresent[i] = x < extrasOf(packs) && (hasHeader || x >= header());
        }
      }
      session.template receive<n + extras>(ranks, slots, isPresent, words);
      if (session.warp().any(hasFailed(wait))) return false;
      storeStep(from, row, step, hasHeader, words, positions);
      return true;
    }

    // ---- storing ----

    /// Stores a step of a row for each of its experts. words: the packs of data and the extra packs of each lane.
    MSCCLPP_INLINE void storeStep(int from, std::uint32_t row, std::uint32_t step, bool hasHeader,
                                  const Word128 (&words)[n + extras], std::uint32_t (&positions)[Lanes::held]) const {
      const std::uint32_t packs = packsOf(step);
      if (hasHeader) readHeader(from, row, step, words, positions);
      MSCCLPP_NO_UNROLL
      for (int j = 0; j < args.dimensions.topk; ++j) {
        const std::uint32_t position = Lanes::valueOf(session.warp(), positions, j);
        if (position == noExpert) continue;
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) {
          const auto pack = static_cast<std::uint32_t>(i * width + session.warp().rank());
          if (pack < packs) sink.pack(position, step * stepPacks + pack, words[i]);
        }
        if constexpr (Source::hasScales) {
          MSCCLPP_UNROLL
          for (int q = 0; q < extras; ++q) {
            const std::uint32_t x = extraOf(q);
            if (x >= header() && x < extrasOf(packs)) storeScales(position, step, x - header(), packs, words[n + q]);
          }
        }
      }
    }
    MSCCLPP_INLINE void storeScales(std::uint32_t position, std::uint32_t step, std::uint32_t pack, std::uint32_t packs,
                                    const Word128& word) const {
      const auto scales = fromWord<float>(word);
      const std::uint32_t groups = (packs + groupPacks - 1) / groupPacks;
      MSCCLPP_UNROLL
      for (std::uint32_t k = 0; k < 4; ++k) {
        if (pack * 4 + k < groups) sink.scale(position, step * stepGroups + pack * 4 + k, scales[static_cast<int>(k)]);
      }
    }
    /// The rows of the choices, noExpert for those of other ranks. The first step's warp also writes the handle and the
    /// origins.
    MSCCLPP_INLINE void readHeader(int from, std::uint32_t row, std::uint32_t step, const Word128 (&words)[n + extras],
                                   std::uint32_t (&positions)[Lanes::held]) const {
      const auto& warp = session.warp();
      const std::uint32_t* const begins = table().begins(from);
      Word128 packs[extras];
      MSCCLPP_UNROLL
      for (int q = 0; q < extras; ++q) packs[q] = words[n + q];
      const std::size_t entry = Handle::entry(args.dimensions, from, row);
      const std::uint32_t token = headerWord(warp, packs, 0, 0);
      const std::uint32_t lanesBefore = (1u << warp.rank()) - 1;
      int choices = 0;
      MSCCLPP_UNROLL
      for (int h = 0; h < Lanes::held; ++h) {
        const int number = Lanes::choiceOf(warp, h);
        const std::uint32_t place = headerWord(warp, packs, number + 1, 0);
        const std::uint32_t weight = headerWord(warp, packs, number + 1, 32);
        const bool isOwn = number < args.dimensions.topk && place != noExpert;
        const std::uint32_t own = warp.ballot(isOwn);
        const int choice = choices + arch::countBits(own & lanesBefore);
        choices += arch::countBits(own);
        positions[h] = isOwn ? begins[place & 0xffffu] + (place >> 16) : noExpert;
        if (step != 0 || !isOwn) continue;
        args.handle.positions[entry + static_cast<std::size_t>(choice)] = static_cast<std::int32_t>(positions[h]);
        args.handle.weights[entry + static_cast<std::size_t>(choice)] = arch::bitCast<float>(weight);
        if (args.placement.origins != nullptr) {
          arch::storeWide(args.placement.origins + positions[h],
                          arch::bitCast<Word128>(
                              RowOrigin{from, static_cast<std::int32_t>(token), choice, arch::bitCast<float>(weight)}));
        }
      }
      if (step == 0 && warp.rank() == 0 && choices < args.dimensions.topk) {
        args.handle.positions[entry + static_cast<std::size_t>(choices)] = -1;
      }
    }
  };
};

}  // namespace mscclpp::moe
