// Combine: the weighted sum of the experts' results of each token, back on the token's rank.
#pragma once

#include "mscclpp/arch/nan.hpp"
#include "mscclpp/arch/rounding.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/expert_rows.hpp"
#include "mscclpp/moe/row_link.hpp"
#include "mscclpp/moe/row_session.hpp"
#include "mscclpp/moe/row_transport.hpp"

namespace mscclpp::moe {

/// The arguments of a Combine. `count` is the number of this rank's tokens, as in the dispatch. If the handle's memory
/// has not been written by a dispatch of so many tokens with the same Handle::identity, which has received its rows,
/// the call fails (outcome OtherHandle).
template <int Ranks, class Transport>
struct CombineArgs : RowArgs<Ranks, Transport> {
  Dimensions dimensions;
  Handle handle;          ///< of the dispatch
  EpochWords dispatches;  ///< of the dispatch: after a failed one the handle is unfit, and combine does nothing
  Phase phase;
  /// Over a transport with row flags, in a call that is not split: so many blocks send and do nothing else, and the
  /// others receive. 0, or not less than all blocks: each does both.
  int sendingBlocks;
};

/// The results of this rank's experts: a source of Combine. Another type with this function may take its place.
template <class T>
struct ExpertResults {
  const T* rows;           ///< [capacity][packs * packSize<T>], 16-byte aligned; rows as the dispatch placed them
  std::uint32_t rowPacks;  ///< packs of a row

  /// Pack `index` of a row. One thread; it may be called several times.
  MSCCLPP_INLINE Pack<T> operator()(std::uint32_t row, std::uint32_t index) const {
    return fromWord<T>(arch::loadWide(reinterpret_cast<const std::byte*>(rows) +
                                      (std::size_t{row} * rowPacks + index) * sizeof(Word128)));
  }
};

/// Where the tokens' results are stored: a sink of Combine.
template <class T>
struct TokenRows {
  T* rows;                 ///< [tokens][packs * packSize<T>], 16-byte aligned
  std::uint32_t rowPacks;  ///< packs of a row

  MSCCLPP_INLINE void operator()(std::uint32_t token, std::uint32_t index, const Pack<T>& pack) const {
    arch::storeWide(reinterpret_cast<std::byte*>(rows) + (std::size_t{token} * rowPacks + index) * sizeof(Word128),
                    toWord<T>(pack));
  }
};

/// Each token's sum, over its choices, of weight * result of the expert, as elements T (bf16, f16). The rank of the
/// experts adds its part in fp32, in the order of the token's choices, and rounds it to T, in which it travels once;
/// the token's rank adds the parts in fp32, in rank order from 0, and rounds the sum to T. So the result is bitwise the
/// same in every run, and its error is at most that of one rounding to T for each rank's part and one of the sum,
/// plus the rounding of fp32. A token without choices gets zeros.
///
/// run() is called by every thread of every block of `grid`, on every rank, as Dispatch::run(), with the handle of the
/// dispatch; in between, the experts' results are computed. They are read with Phase::Send and, over a StoreTransport,
/// with Phase::Receive too. source(row, pack) gives a pack of an expert's result, sink(token, pack, values) gets one of
/// a token's, once each.
template <class T, class RowTransport, int Ranks = 0>
struct Combine {
  static_assert(sizeof(T) == 2, "results are bf16 or f16");
  using Element = T;
  using Transport = RowTransport;
  using Scratch = RowSlots<Transport>;
  using Args = CombineArgs<Ranks, Transport>;
  static constexpr int maxBlockThreads = 512;

  /// The scratch for rows of `rowPacks` packs.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(const Dimensions& dimensions, std::uint32_t rowPacks) {
    Scratch scratch{.maxRows = dimensions.maxTokens,
                    .rowPacks = rowPacks,
                    .extraPacks = 0,
                    .countWords = 0,
                    .flagsPerRow = 1,
                    .ranks = dimensions.ranks};
    // Through a port each piece would be two requests to the proxy.
    if constexpr (!Transport::usesPorts) scratch.flagsPerRow = scratch.steps();
    return scratch;
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && args.dimensions.isValid() && args.scratch.isValid() &&
           args.dimensions.ranks == args.team.size() && args.count <= args.dimensions.maxTokens &&
           args.sendingBlocks >= 0;
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>, "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread");
    if constexpr (checked) {
      if (!checkArguments<Combine>(grid, args)) return false;
    }
    auto wait = args.wait;
    Call<GridType, Source, Sink> call{
        grid, args, source, sink, RowSession<Ranks, Scratch, GridType, BoundedWait>(grid, args, wait), wait};
    return call.run();
  }

 private:
  template <class GridType, class Source, class Sink>
  struct Call {
    using Session = RowSession<Ranks, Scratch, GridType, BoundedWait>;
    static constexpr int width = Session::width;
    static constexpr int n = Session::packsPerLane;
    /// Whether this rank's own parts are computed as they are added, instead of passing through slots.
    static constexpr bool addsOwnPart = Transport::hasRowFlags;
    struct Sum {
      float at[n][packSize<T>];
    };
    static constexpr int held = (maxTopk + width - 1) / width;  ///< entries of a row that a lane holds
    /// The entries of a row that this rank's experts got: lane l has those of choices l, l + width, ...
    struct Entries {
      std::uint32_t positions[held];  ///< -1: none
      std::uint32_t weights[held];    ///< the bits of a float
    };

    const GridType& grid;
    const Args& args;
    const Source& source;
    const Sink& sink;
    Session session;
    BoundedWait& wait;

    MSCCLPP_INLINE bool run() {
      const std::uint64_t stamp = *args.handle.stamp;
      if (session.hasStopped() || args.dispatches.hasStopped(EpochWords::stopped - 1)) return false;
      const bool sends = args.phase != Phase::Receive;
      const bool receives = args.phase != Phase::Send;
      const auto share = session.share(args.phase, grid.warpCount(), args.sendingBlocks);
      const auto end = [&] {
        if (!receives) return session.suspend();
        return session.finish([&](int from) { return rowsFrom(from); });
      };
      if (stamp != args.handle.stampOf(args.count)) {
        if (grid.block().rank() == 0) failForHandle(stamp);
        return end();
      }
      if (sends) session.enter();
      if constexpr (Transport::hasRowFlags) {
        if (!session.awaitEntries()) return end();
      }
      if (share.sends) send(share.first, share.stride);
      if constexpr (!Transport::hasRowFlags) {
        if (receives && !session.awaitEntries()) return end();
      }
      if (share.receives) receive(share.first, share.stride);
      return end();
    }

    MSCCLPP_INLINE void failForHandle(std::uint64_t stamp) {
      const WaitSite site{WaitOperation::Call, args.team.rank(), -1, static_cast<std::uint32_t>(grid.blockIndex()),
                          args.handle.stampOf(args.count)};
      wait.fail(site, WaitOutcome::OtherHandle, stamp);
    }
    MSCCLPP_INLINE std::uint32_t rowsFrom(int from) const {
      std::uint32_t rows = 0;
      for (std::uint32_t token = 0; token < args.count; ++token) {
        rows += args.handle.indexAt(args.dimensions, token, from) >= 0 ? 1 : 0;
      }
      return rows;
    }
    MSCCLPP_INLINE std::uint32_t packOf(std::uint32_t step, int i) const {
      return step * stepPacks + static_cast<std::uint32_t>(i * width + session.warp().rank());
    }
    /// An item is what a warp sends or receives at once: a piece of a row. Steps, as pieces, are complete while the
    /// caches still have them, and a few rows are the work of many warps.
    MSCCLPP_INLINE std::uint32_t itemsPerRow() const { return args.scratch.flagsPerRow; }
    MSCCLPP_INLINE std::uint32_t stepsPerItem() const {
      return Transport::hasRowFlags ? args.scratch.steps() / itemsPerRow() : 1;
    }

    // ---- sending ----

    /// An item to send, which walks over the items of this warp: first, first + stride, ... of all, in which those for
    /// the ranks take turns, since every rank waits for the rows of its first tokens first. Ranks to which less is sent
    /// leave gaps; which rank is the next one changes from item to item of a warp, so that all warps have as many gaps.
    struct Sending {
      std::uint32_t place, stride, end;  ///< of the items with their gaps
      int to = -1;                       ///< -1: none is left
      std::uint32_t row = 0, piece = 0;
    };
    MSCCLPP_INLINE std::uint32_t destinations() const {
      return static_cast<std::uint32_t>(args.team.size() - 1);  // this rank is the last
    }
    MSCCLPP_INLINE Sending firstToSend(std::uint32_t first, std::uint32_t stride) const {
      std::uint32_t most = 0;
      for (std::uint32_t i = 0; i < destinations(); ++i) {
        const std::uint32_t rows = args.handle.received[session.rankInOrder(static_cast<int>(i))];
        most = rows > most ? rows : most;
      }
      Sending item{first, stride, most * itemsPerRow() * destinations()};
      settle(item);
      return item;
    }
    MSCCLPP_INLINE Sending next(Sending item) const {
      item.place += item.stride;
      settle(item);
      return item;
    }
    /// Moves on to the next place that is no gap.
    MSCCLPP_INLINE void settle(Sending& item) const {
      const std::uint32_t count = destinations(), perRow = itemsPerRow();
      for (item.to = -1; item.end > item.place; item.place += item.stride) {
        const std::uint32_t turn = item.place / count;
        const std::uint32_t order = (item.place % count + turn * count / item.stride) % count;
        const int to = session.rankInOrder(static_cast<int>(order));
        if (turn >= args.handle.received[to] * perRow) continue;
        item.to = to;
        item.row = turn / perRow;
        item.piece = turn % perRow;
        return;
      }
    }
    /// The most pieces that one release publishes, which waits for the stores to the link; and how often a warp with
    /// many pieces publishes at least, so that receivers need not wait for its last one.
    static constexpr std::uint32_t mostTogether = Transport::usesPorts ? 1 : width < 4 ? width : 4;
    static constexpr std::uint32_t leastPublications = 6;
    /// Publishes a piece for each lane, or none; if one is published at a time, the one that all lanes have. Called by
    /// all of them.
    MSCCLPP_INLINE void publish(const Sending& ofLane) const {
      if constexpr (mostTogether == 1) {
        if (ofLane.to >= 0) session.publish(ofLane.to, ofLane.row, ofLane.piece, ofLane.row);
      } else {
        session.publishEach(ofLane.to, ofLane.row, ofLane.piece, ofLane.row);
      }
    }

    MSCCLPP_INLINE void send(std::uint32_t first, std::uint32_t stride) {
      if constexpr (Transport::hasRowFlags) {
        if (!session.failed()) sendPieces(first, stride);  // after waits
      } else {
        sendSteps(first, stride);
      }
    }
    /// The entries of the next item are loaded before the results of one, and items are published once the results of
    /// the next one are there: by then their stores have arrived, for which a release waits.
    MSCCLPP_INLINE void sendPieces(std::uint32_t first, std::uint32_t stride) {
      const std::uint32_t steps = stepsPerItem();
      Sending item = firstToSend(first, stride), sent{};  // sent: of each lane
      const std::uint32_t wanted = item.end / stride / leastPublications;
      const std::uint32_t together = wanted < 1 ? 1 : wanted < mostTogether ? wanted : mostTogether;
      std::uint32_t count = 0;  // of items in `sent`
      Entries entries = entriesOf(item.to, item.row);
      while (item.to >= 0) {
        const Sending after = next(item);
        const Entries following = entriesOf(after.to, after.row);
        for (std::uint32_t step = item.piece * steps; step < (item.piece + 1) * steps; ++step) {
          const Sum sum = partOf(entries, step);
          if (count == together) {
            publish(sent);
            sent.to = -1;
            count = 0;
          }
          sendStep(item.to, item.row, step, sum);
        }
        if (mostTogether == 1 || static_cast<std::uint32_t>(session.warp().rank()) == count) sent = item;
        ++count;
        item = after;
        entries = following;
      }
      publish(sent);
    }
    /// As packets: with few tokens a warp has a step at most, and time goes to fetching instructions.
    MSCCLPP_INLINE void sendSteps(std::uint32_t first, std::uint32_t stride) {
      const std::uint32_t perRow = itemsPerRow();
      std::uint32_t item = first;
      for (int i = 0; i < args.team.size(); ++i) {
        const int to = session.rankInOrder(i);
        const std::uint32_t items = args.handle.received[to] * perRow;
        for (; item < items; item += stride) {
          const std::uint32_t row = item / perRow, step = item % perRow;
          sendStep(to, row, step, partOf(entriesOf(to, row), step));
        }
        item -= items;
      }
    }
    MSCCLPP_INLINE void sendStep(int to, std::uint32_t row, std::uint32_t step, const Sum& sum) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = packOf(step, i);
        if (pack < args.scratch.rowPacks) {
          session.send(to, args.scratch.dataSlot(row, pack), toWord<T>(rounded(sum, i)));
        }
      }
    }
    /// The entries of a row that this rank's experts got from a rank, by one load of the warp; none if `from` is
    /// negative. Called by all lanes.
    MSCCLPP_INLINE Entries entriesOf(int from, std::uint32_t row) const {
      Entries entries = {};
      if (from < 0) return entries;
      const std::size_t first = Handle::entry(args.dimensions, from, row);
      MSCCLPP_UNROLL
      for (int q = 0; q < held; ++q) {
        const int choice = q * width + session.warp().rank();
        const std::size_t at = first + static_cast<std::size_t>(choice);
        const bool isEntry = choice < args.dimensions.topk;
        entries.positions[q] = static_cast<std::uint32_t>(isEntry ? args.handle.positions[at] : -1);
        entries.weights[q] = isEntry ? arch::bitCast<std::uint32_t>(args.handle.weights[at]) : 0u;
      }
      return entries;
    }
    /// What this rank's experts contribute to a row. The loads of `batch` results are in flight together. Called by all
    /// lanes.
    MSCCLPP_INLINE Sum partOf(const Entries& entries, std::uint32_t step) const {
      constexpr int batch = Transport::hasRowFlags ? 2 : 4;  // as many as registers hold
      static_assert(maxTopk % batch == 0);
      const auto& warp = session.warp();
      Sum sum = {};
      MSCCLPP_NO_UNROLL
      for (int first = 0; first < args.dimensions.topk; first += batch) {
        std::uint32_t position[batch];
        float weight[batch];
        bool isPresent[batch];
        Word128 words[batch][n];
        MSCCLPP_UNROLL
        for (int c = 0; c < batch; ++c) {
          const int choice = first + c;
          position[c] = warp.shuffle(entries.positions[choice / width], choice % width);
          weight[c] = arch::bitCast<float>(warp.shuffle(entries.weights[choice / width], choice % width));
          // What follows the first -1 is of earlier calls.
          isPresent[c] = static_cast<std::int32_t>(position[c]) >= 0 && (c == 0 || isPresent[c > 0 ? c - 1 : 0]);
        }
        MSCCLPP_UNROLL
        for (int c = 0; c < batch; ++c) {
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) {
            const std::uint32_t pack = packOf(step, i);
            words[c][i] = {0, 0};
            if (isPresent[c] && pack < args.scratch.rowPacks) words[c][i] = toWord<T>(source(position[c], pack));
          }
        }
        MSCCLPP_UNROLL
        for (int c = 0; c < batch; ++c) {
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) {
            if (!isPresent[c]) continue;
            const Pack<T> pack = fromWord<T>(words[c][i]);
            MSCCLPP_UNROLL
            for (int k = 0; k < packSize<T>; ++k) {
              sum.at[i][k] = arch::multiplyAdd(weight[c], widen<T>(pack[k]), sum.at[i][k]);
            }
          }
        }
        if (!isPresent[batch - 1]) break;
      }
      return sum;
    }
    static MSCCLPP_INLINE Pack<T> rounded(const Sum& sum, int i) {
      Pack<T> pack;
      MSCCLPP_UNROLL
      for (int k = 0; k < packSize<T>; ++k) pack[k] = narrow<T>(arch::canonicalNan(sum.at[i][k]));
      return pack;
    }

    // ---- receiving ----

    /// The row by which this rank's experts contribute to an item's token, -1 if they do not.
    MSCCLPP_INLINE std::int32_t ownRowOf(std::uint32_t item) const {
      if (!addsOwnPart || item >= args.count * itemsPerRow()) return -1;
      return args.handle.indexAt(args.dimensions, item / itemsPerRow(), args.team.rank());
    }
    MSCCLPP_INLINE Entries ownEntries(std::int32_t row) const {
      return entriesOf(row >= 0 ? args.team.rank() : -1, static_cast<std::uint32_t>(row));
    }

    /// What this rank's contribution to an item needs is loaded before the item before it is received.
    MSCCLPP_INLINE void receive(std::uint32_t first, std::uint32_t stride) {
      if constexpr (Transport::hasRowFlags) {
        if (session.failed()) return;
      }
      const std::uint32_t perRow = itemsPerRow();
      const std::uint32_t steps = stepsPerItem();
      const auto items = static_cast<std::uint32_t>(args.count) * perRow;
      std::int32_t ownRow = ownRowOf(first), nextRow = ownRowOf(first + stride);
      Entries own = ownEntries(ownRow);
      for (std::uint32_t item = first; item < items; item += stride) {
        const std::int32_t followingRow = ownRowOf(item + 2 * stride);
        const Entries next = ownEntries(nextRow);
        const std::uint32_t token = item / perRow, piece = item % perRow;
        for (std::uint32_t step = piece * steps; step < (piece + 1) * steps; ++step) {
          Word128 ownWords[n];
          if (ownRow >= 0) {
            const Sum sum = partOf(own, step);
            MSCCLPP_UNROLL
            for (int i = 0; i < n; ++i) ownWords[i] = toWord<T>(rounded(sum, i));  // as if it had travelled
          }
          if constexpr (Transport::hasRowFlags) {
            if (step == piece * steps) awaitPiece(token, piece);
            if (session.warp().any(hasFailed(wait))) return;
          }
          receiveStep(token, step, ownRow >= 0, ownWords);
        }
        if (session.warp().any(hasFailed(wait))) return;
        ownRow = nextRow;
        nextRow = followingRow;
        own = next;
      }
    }
    /// Waits for a piece of a token's row from every other rank that sends one.
    MSCCLPP_INLINE void awaitPiece(std::uint32_t token, std::uint32_t piece) {
      for (int i = 0; i < args.team.size() - 1; ++i) {
        const int from = args.team.peer(i);
        const std::int32_t row = args.handle.indexAt(args.dimensions, token, from);
        if (row >= 0) session.await(from, static_cast<std::uint32_t>(row), piece);
      }
    }

    /// ownWords: what the experts of this rank contribute, if `hasOwn`.
    MSCCLPP_INLINE void receiveStep(std::uint32_t token, std::uint32_t step, bool hasOwn,
                                    const Word128 (&ownWords)[n]) {
      Sum sum = {};
      if constexpr (addsOwnPart) {
        const int self = args.team.rank();
        addParts(token, step, 0, self, sum);
        if (hasOwn) {
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) add(sum, i, fromWord<T>(ownWords[i]));
        }
        addParts(token, step, self + 1, args.team.size(), sum);
      } else {
        addParts(token, step, 0, args.team.size(), sum);
      }
      if (hasFailed(wait)) return;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = packOf(step, i);
        if (pack < args.scratch.rowPacks) sink(token, pack, rounded(sum, i));
      }
    }
    static MSCCLPP_INLINE void add(Sum& sum, int i, const Pack<T>& part) {
      MSCCLPP_UNROLL
      for (int k = 0; k < packSize<T>; ++k) sum.at[i][k] += widen<T>(part[k]);
    }
    /// Adds the parts from ranks [begin, end), with the loads of two ranks in flight together.
    MSCCLPP_INLINE void addParts(std::uint32_t token, std::uint32_t step, int begin, int end, Sum& sum) {
      constexpr int batch = 2;
      for (int first = begin; first < end; first += batch) {
        int from[batch * n];
        std::uint32_t slots[batch * n];
        bool isPresent[batch * n];
        Word128 words[batch * n] = {};
        bool hasAny = false;
        MSCCLPP_UNROLL
        for (int b = 0; b < batch; ++b) {
          const bool isRank = first + b < end;
          const std::int32_t row = isRank ? args.handle.indexAt(args.dimensions, token, first + b) : -1;
          hasAny = hasAny || row >= 0;
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) {
            const std::uint32_t pack = packOf(step, i);
            from[b * n + i] = isRank ? first + b : first;
            isPresent[b * n + i] = row >= 0 && pack < args.scratch.rowPacks;
            slots[b * n + i] = args.scratch.dataSlot(row >= 0 ? static_cast<std::uint32_t>(row) : 0, pack);
          }
        }
        if (!hasAny) continue;
        session.template receive<batch * n>(from, slots, isPresent, words);
        MSCCLPP_UNROLL
        for (int i = 0; i < batch * n; ++i) {
          if (isPresent[i]) add(sum, i % n, fromWord<T>(words[i]));
        }
      }
    }
  };
};

}  // namespace mscclpp::moe
