// A row exchange: a reduction whose contributions are pushed by code that holds them in registers or shared memory,
// like the epilogue of a matrix multiplication, with a transform of whole rows between the reduction and its delivery.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/block_order.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/row_contribution.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// The reduced elements of a row that one lane of a warp holds, in up to n packs.
template <class T, int n>
class RowPacks {
 public:
  /// Calls f(column, pack) for each pack of the lane; column: of its first element. f may change the pack.
  template <class F>
  MSCCLPP_INLINE void forEach(const F& f) {
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      const std::size_t column = (static_cast<std::size_t>(i) * width_ + lane_) * packSize<T>;
      if (column < columns_) f(column, packs_[i]);
    }
  }
  /// Calls f(column, pack, isPresent) n times in every lane, so that f may exchange registers with the other lanes. The
  /// packs that are not present have any value.
  template <class F>
  MSCCLPP_INLINE void forEachInAllLanes(const F& f) {
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      const std::size_t column = (static_cast<std::size_t>(i) * width_ + lane_) * packSize<T>;
      f(column, packs_[i], column < columns_);
    }
  }

 private:
  template <class, int, class, class, class, class>
  friend class RowExchange;
  Pack<T> packs_[n];
  std::size_t lane_;
  std::size_t width_;
  std::size_t columns_;
};

/// One call of a row exchange: every rank contributes to every element of args.count rows; each row is reduced in rank
/// order, transformed by a warp, and delivered. Made by makeRowExchange() in all threads of a grid, on every rank.
///
/// 1. Any threads contribute() to rows, or store to slot(), and publish() each block of rows in `parts` parts. No wait.
/// 2. All warps of the grid call reduce(), which waits for the parts of the rows that this rank reduces.
/// 3. All warps of the grid call collect(), which waits for the results of the other rows.
/// 4. All threads of the grid call finish().
///
/// Producers may be other warps than the grid's: they make a RowContribution of their own.
///
/// The sources of the idea are Flux (arXiv 2406.06858) and TokenWeave (arXiv 2505.11329). Two calls on one scratch do
/// not overlap in time, and a rank's call starts when all blocks of its previous call have ended.
template <class Op, int Ranks, class Scratch, class GridType, class Wait, class Trace>
class RowExchange : public RowContribution<Ranks, Scratch> {
  using Contribution = RowContribution<Ranks, Scratch>;

 public:
  using Contribution::delivery;
  using Contribution::owner;
  using typename Contribution::Owners;
  using typename Contribution::T;

  MSCCLPP_INLINE RowExchange(const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, std::size_t rows,
                             Wait& wait, Trace& trace, const Op& op)
      : Contribution(makeRowContribution(grid, args)),
        op_(op),
        grid_(grid),
        warp_(grid.warp()),
        rows_(rows),
        wait_(wait),
        trace_(trace) {
    if (!hasStopped_) hasStopped_ = !isValid();
    if (hasStopped_) return;
    if constexpr (delivery == RowDelivery::ToOwner) {
      // Release: what this rank read in the calls before may be overwritten from now on.
      if (!isFirstWarp()) return;
      for (int i = warp_.rank(); i < team().size() - 1; i += warp_.size()) {
        arch::store<arch::Order::Release, arch::Scope::System>(entryOf(team().peer(i), team().rank()), epoch_);
      }
    }
  }

  MSCCLPP_INLINE std::size_t rows() const { return rows_; }
  /// Blocks of rows of this call.
  MSCCLPP_INLINE std::size_t blocks() const { return args_.scratch.blocksOf(rows()); }
  /// The i-th block in the order in which this rank had best contribute them (collective/block_order.hpp).
  MSCCLPP_INLINE std::size_t blockInOrder(std::size_t i) const {
    return remoteBlockFirst<Owners>(i, blocks(), team().rank(), team().size());
  }

  // ---- 1. contributions: contribute(), slot() and ----

  /// RowContribution::publish(), traced.
  template <ThreadGroup Group>
  MSCCLPP_INLINE void publish(const Group& group, std::size_t block) const {
    const TraceSpan span(trace_, TraceId::Publish, block);
    Contribution::publish(group, block);
  }

  // ---- 2. reduction ----

  /// Reduces the rows that this rank reduces, each by one warp: waits until every rank has published `parts` parts of
  /// the row's block, then calls transform(warp, row, packs, output) in all lanes. `packs` is RowPacks<T,
  /// packsPerLane>, which must have room for the row in the lanes of the warp, or the call is refused; it has the
  /// elements of the row rounded once. The transform writes the row's result, in words of 16 bytes, by output(byte,
  /// word), each word once; byte is a multiple of 16. Wherever the result is delivered, sink(row, byte, word) gets
  /// those words. Returns whether all waits of this warp succeeded.
  template <int packsPerLane, class Transform, class Sink>
  MSCCLPP_INLINE bool reduce(std::uint32_t parts, const Transform& transform, const Sink& sink) {
    if (hasStopped_) return false;
    if (args_.scratch.columns > static_cast<std::size_t>(packsPerLane * packSize<T> * warp_.size())) return refuse();
    const std::size_t perBlock = static_cast<std::size_t>(args_.scratch.rowsPerBlock);
    const std::size_t own =
        (delivery == RowDelivery::Redundant ? blocks() : Owners::count(blocks(), team().rank(), team().size())) *
        perBlock;
    for (std::size_t i = firstItem(); i < own; i += itemStride()) {
      const std::size_t block =
          delivery == RowDelivery::Redundant ? i / perBlock : Owners::block(team().rank(), i / perBlock, team().size());
      const std::size_t row = block * perBlock + i % perBlock;
      if (row >= rows()) continue;
      const TraceSpan span(trace_, TraceId::Reduce, row);
      if (!awaitParts(block, parts)) return false;
      RowPacks<T, packsPerLane> packs = load<packsPerLane>(row);
      transform(warp_, row, packs, [&](std::size_t byte, const Word128& word) { deliver(row, byte, word, sink); });
      if constexpr (delivery == RowDelivery::ToAll) {
        warp_.sync();
        for (int p = warp_.rank(); p < team().size() - 1; p += warp_.size()) {
          arch::store<arch::Order::Release, arch::Scope::System>(readyOf(team().peer(p), row), epoch_);
        }
      }
    }
    return true;
  }

  // ---- 3. results of the other ranks ----

  /// Waits for the results of the rows that other ranks reduce, and calls sink(row, byte, word) for each of their
  /// words. Returns whether all waits of this warp succeeded. Does nothing unless the delivery is RowDelivery::ToAll.
  template <class Sink>
  MSCCLPP_INLINE bool collect(const Sink& sink) {
    if constexpr (delivery == RowDelivery::ToAll) {
      if (hasStopped_) return false;
      for (std::size_t row = firstItem(); row < rows(); row += itemStride()) {
        const int from = owner(args_.scratch.blockOf(row));
        if (from == team().rank()) continue;
        const TraceSpan span(trace_, TraceId::Collect, row);
        if (warp_.rank() == 0) {
          await(readyOf(team().rank(), row), from, epoch_, [&](std::uint64_t seen) { return seen == epoch_; });
        }
        warp_.sync();
        if (warp_.any(failed())) return false;
        const std::byte* const result = args_.window.at(team().rank(), args_.scratch.resultOffset(epoch_, row));
        for (std::size_t byte = static_cast<std::size_t>(warp_.rank()) * sizeof(Word128);
             byte < args_.scratch.resultBytes; byte += static_cast<std::size_t>(warp_.size()) * sizeof(Word128)) {
          sink(row, byte, arch::loadWide(result + byte));
        }
      }
    }
    return true;
  }

  // ---- 4. ----

  /// Ends the call. Returns whether all waits of this thread succeeded.
  MSCCLPP_INLINE bool finish() {
    if (hasStopped_) return false;
    if constexpr (delivery == RowDelivery::ToOwner) {
      // A rank that reduces no row needs no data. That all peers have entered this call is what the others know by
      // data.
      if (isFirstWarp()) {
        for (int i = warp_.rank(); i < team().size() - 1; i += warp_.size()) {
          const int peer = team().peer(i);
          await(entryOf(team().rank(), peer), peer, epoch_,
                [&](std::uint64_t seen) { return static_cast<std::int64_t>(seen - epoch_) >= 0; });
        }
      }
    }
    // The words of the call before.
    clear(args_.scratch.arrivalSetOffset(epoch_ + 2), args_.scratch.arrivalWords());
    if (failed()) args_.epochs.stop(epoch_);
    args_.epochs.advance(grid_, epoch_ + 1);
    return !failed();
  }

 private:
  using Contribution::args_;
  using Contribution::arrivalsOf;
  using Contribution::epoch_;
  using Contribution::hasStopped_;
  using Contribution::team;

  static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
  using Warp = decltype(someGrid().warp());

  MSCCLPP_INLINE bool isFirstWarp() const { return grid_.blockIndex() == 0 && grid_.warpIndex() == 0; }
  MSCCLPP_INLINE bool failed() const { return hasFailed(wait_); }
  /// Where calls are checked, whether the rows fit in the scratch.
  MSCCLPP_INLINE bool isValid() const {
    if constexpr (checked) {
      if (!args_.scratch.accepts(rows_)) return refuse();
    }
    return true;
  }
  MSCCLPP_INLINE bool refuse() const { return detail::refuseArguments(grid_, args_); }
  /// Rows are distributed over the warps; consecutive ones go to different blocks.
  MSCCLPP_INLINE std::size_t firstItem() const {
    return static_cast<std::size_t>(grid_.warpIndex() * grid_.blockCount() + grid_.blockIndex());
  }
  MSCCLPP_INLINE std::size_t itemStride() const {
    return static_cast<std::size_t>(grid_.warpCount() * grid_.blockCount());
  }

  MSCCLPP_INLINE std::uint64_t* readyOf(int rank, std::size_t row) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(rank, args_.scratch.readyOffset(epoch_, row)));
  }
  MSCCLPP_INLINE std::uint64_t* entryOf(int rank, int from) const {
    return reinterpret_cast<std::uint64_t*>(args_.window.at(rank, args_.scratch.entryOffset(from)));
  }

  template <class Word, class IsReached>
  MSCCLPP_INLINE void await(const Word* word, int peer, std::uint64_t expected, const IsReached& isReached) {
    Contribution::await(wait_, grid_.blockIndex(), word, peer, expected, isReached);
  }
  /// Sets words of this rank's window to 0: those of the call before, of which there are no others in flight.
  MSCCLPP_INLINE void clear(std::size_t offset, std::size_t count) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(args_.window.at(team().rank(), offset));
    const auto block = grid_.block();
    for (std::size_t i = static_cast<std::size_t>(grid_.blockIndex() * block.size() + block.rank()); i < count;
         i += static_cast<std::size_t>(grid_.blockCount() * block.size())) {
      arch::store<arch::Order::Relaxed, arch::Scope::System>(&words[i], 0u);
    }
  }
  MSCCLPP_INLINE bool awaitParts(std::size_t block, std::uint32_t parts) {
    for (int from = warp_.rank(); from < team().size(); from += warp_.size()) {
      await(arrivalsOf(team().rank(), block, from), from, parts, [&](std::uint64_t seen) { return seen >= parts; });
    }
    warp_.sync();
    return !warp_.any(failed());
  }

  template <int n>
  MSCCLPP_INLINE RowPacks<T, n> load(std::size_t row) const {
    RowPacks<T, n> packs;
    packs.lane_ = static_cast<std::size_t>(warp_.rank());
    packs.width_ = static_cast<std::size_t>(warp_.size());
    packs.columns_ = args_.scratch.columns;
    const std::byte* const first = args_.window.at(team().rank(), args_.scratch.contributionOffset(epoch_, row, 0));
    const std::size_t perRank = args_.scratch.contributionOffset(0, 0, 1);
    packs.forEach([&](std::size_t column, Pack<T>& pack) {
      const auto term = [&](int from) {
        return arch::loadWide(first + static_cast<std::size_t>(from) * perRank + column * sizeof(T));
      };
      if constexpr (Ranks > 0) {
        Word128 words[Ranks];  // all loads are in flight before the first is used
        MSCCLPP_UNROLL
        for (int r = 0; r < Ranks; ++r) words[r] = term(r);
        pack = fromWord<T>(reduceWords<T>(words, op_));
      } else {
        // The same for groups of ranks: one after the other, each load would take a trip to the memory.
        constexpr int atOnce = n <= 4 ? 4 : 2;
        Word128 words[atOnce];
        const auto loadFrom = [&](int rank) {
          MSCCLPP_UNROLL
          for (int i = 0; i < atOnce; ++i) {
            if (rank + i < team().size()) words[i] = term(rank + i);
          }
        };
        loadFrom(0);
        PackReducer<T, Op> reducer(fromWord<T>(words[0]), op_);
        for (int rank = 0; rank < team().size(); rank += atOnce) {
          if (rank > 0) loadFrom(rank);
          MSCCLPP_UNROLL
          for (int i = 0; i < atOnce; ++i) {
            if (rank + i > 0 && rank + i < team().size()) reducer.add(fromWord<T>(words[i]));
          }
        }
        pack = reducer.finish(team().size());
      }
    });
    return packs;
  }

  template <class Sink>
  MSCCLPP_INLINE void deliver(std::size_t row, std::size_t byte, const Word128& word, const Sink& sink) const {
    if constexpr (delivery == RowDelivery::ToAll) {
      const std::size_t offset = args_.scratch.resultOffset(epoch_, row) + byte;
      MSCCLPP_UNROLL
      for (int i = 0; i < team().size() - 1; ++i) arch::storeWide(args_.window.at(team().peer(i), offset), word);
    }
    sink(row, byte, word);
  }

  [[no_unique_address]] const Op op_;
  const GridType& grid_;
  const Warp warp_;
  const std::size_t rows_;
  Wait& wait_;
  Trace& trace_;
};

/// A RowExchange for one call, with the reduction operator op, the same on all ranks. rows: at least 1 and at most
/// args.scratch.rows.
template <class Op, Grid GridType, int Ranks, class Scratch, WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE RowExchange<Op, Ranks, Scratch, GridType, Wait, Trace> makeRowExchange(
    const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, std::size_t rows, Wait& wait, Trace& trace,
    const Op& op) {
  return {grid, args, rows, wait, trace, op};
}
/// The same with args.count rows.
template <class Op, Grid GridType, int Ranks, class Scratch, WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE RowExchange<Op, Ranks, Scratch, GridType, Wait, Trace> makeRowExchange(
    const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, Wait& wait, Trace& trace, const Op& op) {
  return {grid, args, args.count, wait, trace, op};
}
/// The same with an operator without state.
template <StatelessOperator Op, Grid GridType, int Ranks, class Scratch, WaitPolicy Wait, TracePolicy Trace>
MSCCLPP_INLINE RowExchange<Op, Ranks, Scratch, GridType, Wait, Trace> makeRowExchange(
    const GridType& grid, const CollectiveArgs<Ranks, Scratch>& args, Wait& wait, Trace& trace) {
  return {grid, args, args.count, wait, trace, Op{}};
}

}  // namespace mscclpp
