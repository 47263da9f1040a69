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
    return {.maxRows = dimensions.maxTokens,
            .rowPacks = rowPacks,
            .extraPacks = 0,
            .countWords = 0,
            .ranks = dimensions.ranks};
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && args.dimensions.isValid() && args.scratch.isValid() &&
           args.dimensions.ranks == args.team.size() && args.count <= args.dimensions.maxTokens;
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
      const auto share = session.share(args.phase, grid.warpCount());
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
    /// Items are the steps of a row or, where rows have flags, the rows.
    MSCCLPP_INLINE std::uint32_t itemsPerRow() const { return Transport::hasRowFlags ? 1 : args.scratch.steps(); }

    // ---- sending ----

    MSCCLPP_INLINE void send(std::uint32_t first, std::uint32_t stride) {
      if constexpr (Transport::hasRowFlags) {  // after waits
        if (session.failed()) return;
      }
      const std::uint32_t perRow = itemsPerRow();
      std::uint32_t item = first;
      for (int i = 0; i < args.team.size() - (addsOwnPart ? 1 : 0); ++i) {
        const int to = session.rankInOrder(i);  // this one is the last
        const std::uint32_t items = args.handle.received[to] * perRow;
        for (; item < items; item += stride) {
          const std::uint32_t row = item / perRow;
          if constexpr (Transport::hasRowFlags) {
            for (std::uint32_t step = 0; step < args.scratch.steps(); ++step) sendStep(to, row, step);
            session.publish(to, row);
          } else {
            sendStep(to, row, item % perRow);
          }
        }
        item -= items;
      }
    }

    MSCCLPP_INLINE void sendStep(int to, std::uint32_t row, std::uint32_t step) const {
      const Sum sum = partOf(to, row, step);
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = packOf(step, i);
        if (pack < args.scratch.rowPacks) {
          session.send(to, args.scratch.dataSlot(row, pack), toWord<T>(rounded(sum, i)));
        }
      }
    }
    /// What this rank's experts contribute to a row that they got from a rank. One load of the warp reads all entries
    /// of the row, and the loads of `batch` results are in flight together. Called by all lanes.
    MSCCLPP_INLINE Sum partOf(int from, std::uint32_t row, std::uint32_t step) const {
      constexpr int batch = Transport::hasRowFlags ? 2 : 4;  // as many as registers hold
      constexpr int held = (maxTopk + width - 1) / width;    // entries of a lane
      static_assert(maxTopk % batch == 0);
      const auto& warp = session.warp();
      const std::size_t entry = Handle::entry(args.dimensions, from, row);
      std::uint32_t positions[held];
      std::uint32_t weights[held];
      MSCCLPP_UNROLL
      for (int q = 0; q < held; ++q) {
        const int choice = q * width + warp.rank();
        const std::size_t at = entry + static_cast<std::size_t>(choice);
        const bool isEntry = choice < args.dimensions.topk;
        positions[q] = static_cast<std::uint32_t>(isEntry ? args.handle.positions[at] : -1);
        weights[q] = isEntry ? arch::bitCast<std::uint32_t>(args.handle.weights[at]) : 0u;
      }
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
          position[c] = warp.shuffle(positions[choice / width], choice % width);
          weight[c] = arch::bitCast<float>(warp.shuffle(weights[choice / width], choice % width));
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

    MSCCLPP_INLINE void receive(std::uint32_t first, std::uint32_t stride) {
      if constexpr (Transport::hasRowFlags) {
        if (session.failed()) return;
      }
      const std::uint32_t perRow = itemsPerRow();
      const std::uint32_t items = static_cast<std::uint32_t>(args.count) * perRow;
      for (std::uint32_t item = first; item < items; item += stride) {
        const std::uint32_t token = item / perRow;
        if constexpr (Transport::hasRowFlags) {
          for (int from = 0; from < args.team.size(); ++from) {
            const std::int32_t row = args.handle.indexAt(args.dimensions, token, from);
            if (row >= 0 && from != args.team.rank()) session.await(from, static_cast<std::uint32_t>(row));
          }
          if (session.warp().any(hasFailed(wait))) return;
          for (std::uint32_t step = 0; step < args.scratch.steps(); ++step) receiveStep(token, step);
        } else {
          receiveStep(token, item % perRow);
        }
        if (session.warp().any(hasFailed(wait))) return;
      }
    }

    MSCCLPP_INLINE void receiveStep(std::uint32_t token, std::uint32_t step) {
      Sum sum = {};
      if constexpr (addsOwnPart) {
        const int self = args.team.rank();
        addParts(token, step, 0, self, sum);
        const std::int32_t row = args.handle.indexAt(args.dimensions, token, self);
        if (row >= 0) {
          const Sum part = partOf(self, static_cast<std::uint32_t>(row), step);
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) add(sum, i, rounded(part, i));  // as if it had travelled
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
