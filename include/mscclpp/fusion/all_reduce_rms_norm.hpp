// All-reduce, residual and RMSNorm in one pass: what follows a row-parallel linear layer of a transformer.
#pragma once

#include "mscclpp/arch/launch.hpp"
#include "mscclpp/arch/wide.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/packet_call.hpp"
#include "mscclpp/fusion/quantise.hpp"
#include "mscclpp/fusion/row_norm.hpp"
#include "mscclpp/fusion/row_threads.hpp"

namespace mscclpp {

/// The choices of an AllReduceRmsNorm.
struct AllReduceRmsNormConfig {
  Protocol protocol = Protocol::Sentinel;  ///< or LL16, LL8
  /// OneShot: every rank reduces all rows, for few tokens. TwoShot: a row is reduced by one rank, which shares the row
  /// of the new residual; every rank normalises that itself, so that one array travels for all outputs.
  Pattern pattern = Pattern::OneShot;
  int ranks = 0;  ///< > 0: fixed at compile time, so that loops over peers are unrolled; 0: known at run time
  Quantisation quantisation = Quantisation::None;
  /// The most packs of a row that a thread holds in registers; 0: rows of 16384 elements fit in blocks of 512 threads.
  int packsPerThread = 0;
};

/// An all-reduce of rows of args.hidden elements T (bf16, f16, float), then for each row x, in these steps:
///   s = the sum of x over the ranks, in rank order and in fp32, rounded to T
///   h = s + residual, rounded to T                                  -> newResidual
///   y = h / sqrt(mean(h * h) + epsilon) * weight, rounded to T      -> normalised
///   q = y / scale, rounded to fp8 e4m3 (saturating) or int8         -> quantised
/// These are the roundings of separate kernels. A scale per row or per group is the largest |y| / 448 (int8: 127), not
/// below the smallest normal float, and NaN if a y is infinite or NaN; value = scale * q.
///
/// The sum of squares is in fp32, in an order that depends on `hidden` and the width of a warp only: all ranks get the
/// same bits in every run, whatever the pattern, the protocol and the numbers of blocks and threads.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, hidden, numbers of
/// blocks and threads, and config. args.count: elements, args.hidden times the rows, of which there may be any number;
/// with none it returns at once. hidden is a multiple of packSize<T>, at most packsPerThread packs for each thread of a
/// block. The grid needs sharedBytes(args, shape) bytes of shared memory in each block, which launch() provides; a grid
/// without shared memory (a part of the warps of a block, or a CPU thread) holds a row in one warp. Calls on the same
/// scratch must not overlap in time. Other arguments are refused: that is a record in args.wait's control block, and on
/// a CPU InvalidCall. A wait that fails leaves its record there too; the outputs are then meaningless.
///
/// source(first, valid) is called once or twice for each pack (basic/source_sink.hpp); first is an index in rows x
/// hidden. In place: normalised may be the array of the source.
template <class T, AllReduceRmsNormConfig config>
struct AllReduceRmsNorm {
  static constexpr bool isOneShot = config.pattern == Pattern::OneShot;
  using Element = T;
  using Packets = typename PackProtocolOf<config.protocol>::Type;
  using Scratch = PacketSlots<Packets, isOneShot ? 1 : 2, SlotReuse::ByData>;
  struct Args : CollectiveArgs<config.ranks, Scratch> {
    std::size_t hidden;  ///< elements of a row; CollectiveState::args() leaves it 0: set it before the call
  };
  static constexpr int maxBlockThreads = 512;
  static constexpr std::size_t maxHidden = 16384;  ///< with packsPerThread = 0 and blocks of maxBlockThreads threads
  static constexpr int packsPerThread = config.packsPerThread > 0
                                            ? config.packsPerThread
                                            : static_cast<int>(maxHidden / packSize<T>) / maxBlockThreads;

  /// The scratch for calls of up to `count` elements.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t count, int ranks) {
    const std::size_t packs = ceilDivide(count, packSize<T>);
    if (isOneShot || ranks == 1) return {packs, ranks};
    const std::size_t longestRow = static_cast<std::size_t>(packsPerThread) * maxBlockThreads;
    return {ceilDivide(packs, static_cast<std::size_t>(ranks)) + (packs < longestRow ? packs : longestRow), ranks};
  }
  /// Whether a launch of this shape can run. Where hidden is still 0, whether one with a suitable value can.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    if (shape.blocks < 1 || shape.blocks > maxBlocks || shape.threads < 1) return false;
    const std::size_t packs = args.count / packSize<T>;
    if (args.count % packSize<T> != 0 || packs >= maxRows) return false;
    // Divisions of 32 bits: those of 64 are slow on a GPU.
    const auto slices = isOneShot ? 1u : static_cast<std::uint32_t>(args.team.size());
    if (args.hidden == 0) return (static_cast<std::uint32_t>(packs) + slices - 1) / slices <= args.scratch.arrayPacks;
    if (args.hidden % packSize<T> != 0 || (args.hidden / packSize<T>) > packs) return packs == 0;
    const auto rowPacks = static_cast<std::uint32_t>(args.hidden / packSize<T>);
    const std::uint32_t rows = static_cast<std::uint32_t>(packs) / rowPacks;
    return rows * rowPacks == packs && rowPacks <= static_cast<std::uint32_t>(packsPerThread * shape.threads) &&
           std::size_t{(rows + slices - 1) / slices} * rowPacks <= args.scratch.arrayPacks;
  }
  /// Shared memory of a block, in bytes. warpWidth: 32 on a GPU.
  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args&, LaunchShape shape, int warpWidth = 32) {
    return rowThreadsBytes(packsPerThread, shape.threads, warpWidth);
  }
  /// Whether run() waits for the kernels that its own depends on: see Collective.
  static constexpr bool awaitsPrerequisites = true;
  /// A launch for rows of `hidden` elements: a block for each row, as far as there are `blocks`, at most those that are
  /// resident at once, with as few threads as receive a row in one turn, since the warps of a multiprocessor share its
  /// instruction rate. The same on all ranks if the arguments are.
  static MSCCLPP_HOST_DEVICE LaunchShape shapeFor(std::size_t rows, std::size_t hidden, int blocks) {
    const std::size_t threads = roundUp(ceilDivide(hidden, packSize<T> * batch), 32);
    const auto most = static_cast<std::size_t>(blocks < maxBlocks ? blocks : maxBlocks);
    return {static_cast<int>(rows < 1      ? 1
                             : rows < most ? rows
                                           : most),
            static_cast<int>(threads < 32                ? 32
                             : threads < maxBlockThreads ? threads
                                                         : maxBlockThreads)};
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source,
                                 const RmsNormArrays<T>& arrays) {
    static_assert(Grid<GridType>,
                  "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread; see Grid in "
                  "basic/concepts.hpp");
    static_assert(
        SourceOf<Source, T>,
        "source must be a const callable Pack<T>(std::size_t first, int valid), such as ArraySource<T>(data); "
        "see SourceOf in basic/source_sink.hpp");
    // What depends on the arguments alone is computed before the wait for the kernels ahead.
    const auto rowPacks = static_cast<std::uint32_t>(args.hidden / packSize<T>);
    if (args.count == 0 || args.hidden == 0 || !accepts(args, {grid.blockCount(), grid.block().size()}) ||
        !RowThreads<packsPerThread, GridType>::canHold(grid, rowPacks) || !arrays.isAligned()) {
      arch::waitForPrerequisites();
      if (args.count == 0) return true;
      return detail::refuseArguments(grid, args);
    }
    Rows<GridType, Source> rows{{grid, rowPacks},
                                args,
                                source,
                                arrays,
                                {arrays, rowPacks},
                                rowPacks,
                                static_cast<std::uint32_t>(args.count / packSize<T>) / rowPacks};
    arch::waitForPrerequisites();
    if constexpr (checked) {
      if (!compareCalls<AllReduceRmsNorm>(grid, args)) return false;
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, TraceId::AllReduce, args.count * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    PacketCall call(grid, args, wait);
    // In flight together with the epoch, which the next line awaits.
    Word128 weights[n] = {};
    OwnRow first = {};
    if constexpr (prefetches) {
      rows.load(rows.threads.first(), first);
      rows.norm.loadWeights(rows.threads, weights);
    }
    if (call.hasStopped()) return false;
    rows.run(call, first, weights);
    return call.end([&](int array, int from) {
      return from == args.team.rank() ? 0u : rows.owned(array == 0 ? args.team.rank() : from) * rowPacks;
    });
  }

 private:
  static_assert(packSize<T> >= 4 && !detail::SameAs<T, float> == (sizeof(T) == 2), "T must be bf16, f16 or float");
  static_assert(packsPerThread > 0);

  static constexpr int n = packsPerThread;
  using Index = rows::PackCount;

  /// Packs of a call are fewer.
  static constexpr std::size_t maxRows = std::size_t{1} << 30;

  /// A row of so many packs is not in registers: its packs have addresses.
  static constexpr bool inMemory = n > 8;
  /// What may be in flight at the same time is bounded by registers. Packs of a row:
  static constexpr int batch = n > 2 || config.ranks > 4 || config.ranks < 2 ? 1 : n;
  /// the contributions of all ranks to them,
  static constexpr bool allRanksAtOnce = n <= 2;
  /// the residual while contributions are awaited,
  static constexpr bool loadsResidualEarly = n <= 2 && config.ranks <= 4;
  /// the OwnRow and the weights too, and the OwnRow of the next row while one is normalised.
  static constexpr bool prefetches = loadsResidualEarly && (n == 1 || config.ranks > 0);
  static_assert(n % batch == 0);

  /// What a thread adds to the contributions of the peers to a row.
  struct OwnRow {
    Word128 contribution[n];
    Word128 residual[n];
  };

  /// The rows of a call, as one thread sees them.
  template <class GridType, class Source>
  struct Rows {
    RowThreads<n, GridType> threads;
    const Args& args;
    const Source& source;
    const RmsNormArrays<T>& arrays;
    const RowNorm<T, n> norm;
    const std::uint32_t rowPacks;
    const std::uint32_t count;  ///< of the rows

    static constexpr int contributions = 0;
    static constexpr int results = 1;

    /// Rows that a rank reduces: one-shot all, two-shot every size-th from `rank` on.
    MSCCLPP_INLINE std::uint32_t owned(int rank) const {
      const auto first = static_cast<std::uint32_t>(rank);
      const auto ranks = static_cast<std::uint32_t>(args.team.size());
      if (isOneShot) return count;
      return count > first ? (count - first + ranks - 1) / ranks : 0;
    }
    MSCCLPP_INLINE std::uint32_t rowOf(int rank, std::uint32_t index) const {
      return isOneShot ? index
                       : index * static_cast<std::uint32_t>(args.team.size()) + static_cast<std::uint32_t>(rank);
    }
    MSCCLPP_INLINE std::size_t element(std::uint32_t row, std::uint32_t pack) const {
      return (std::size_t{row} * rowPacks + pack) * packSize<T>;
    }
    MSCCLPP_INLINE Index slot(std::uint32_t index, std::uint32_t pack) const { return index * rowPacks + pack; }
    MSCCLPP_INLINE Word128 contributionAt(std::uint32_t row, std::uint32_t pack) const {
      return toWord<T>(source(element(row, pack), packSize<T>));
    }
    MSCCLPP_INLINE Word128 residualAt(std::uint32_t row, std::uint32_t pack) const {
      return arch::loadWide(arrays.residual + element(row, pack));
    }
    template <class F>
    MSCCLPP_INLINE void forEachPack(const F& f) const {
      norm.forEachPack(threads, f);
    }
    /// Item i of the rows that other ranks reduce, in an order that alternates between the ranks.
    struct Item {
      int owner;
      std::uint32_t index;
    };
    MSCCLPP_INLINE Item otherItem(std::uint32_t i) const {
      const auto peers = static_cast<std::uint32_t>(args.team.size() - 1);
      return {args.team.peer(static_cast<int>(i % peers)), i / peers};
    }
    /// The number of items, some of which may be empty: those of rank 0, which has the most, for each peer.
    MSCCLPP_INLINE std::uint32_t otherItems() const {
      return isOneShot ? 0 : owned(0) * static_cast<std::uint32_t>(args.team.size() - 1);
    }

    /// Loads the OwnRow of row `index` of those that this rank reduces, if there is one. A condition for each load: the
    /// compiler makes it a predicate, where a branch would wait for the loads behind it.
    MSCCLPP_INLINE void load(std::uint32_t index, OwnRow& own) const {
      const bool isPresent = index < owned(args.team.rank());
      const std::uint32_t row = rowOf(args.team.rank(), index);
      loadContributions(row, isPresent, own.contribution);
      loadResiduals(row, isPresent, own.residual);
    }
    MSCCLPP_INLINE void loadResiduals(std::uint32_t row, bool isPresent, Word128 (&words)[n]) const {
      const bool hasResidual = isPresent && arrays.residual != nullptr;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = threads.pack(i);
        if (hasResidual && pack < rowPacks) words[i] = residualAt(row, pack);
      }
    }
    MSCCLPP_INLINE void loadContributions(std::uint32_t row, bool isPresent, Word128 (&words)[n]) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = threads.pack(i);
        if (isPresent && pack < rowPacks) words[i] = contributionAt(row, pack);
      }
    }

    /// own and weights: with `prefetches` loaded, own for the thread's first row.
    template <class Call>
    MSCCLPP_INLINE void run(Call& call, OwnRow& own, Word128 (&weights)[n]) {
      const int order = call.rotation();
      sendRows(call, own, order);
      // One loop for own and others' rows: all ranks normalise a row by the same instructions. All threads of a block
      // make the steps that its first row needs, since they meet at barriers.
      const std::uint32_t ownRows = owned(args.team.rank());
      bool isOwn = true;
      for (std::uint32_t at = 0;; at += threads.stride()) {
        if (isOwn && threads.firstOfBlock() + at >= ownRows) {
          if (isOneShot) break;
          isOwn = false;
          at = 0;
        }
        if (!isOwn && threads.firstOfBlock() + at >= otherItems()) break;
        const std::uint32_t i = threads.first() + at;
        const Item item = isOwn ? Item{args.team.rank(), i} : otherItem(i);
        const std::uint32_t row = rowOf(item.owner, item.index);
        const bool isPresent = i < (isOwn ? ownRows : otherItems()) && item.index < owned(item.owner);
        Word128 h[n] = {};
        if (isPresent) {
          if (isOwn) {
            reduceRow(call, item.index, row, own, h);
            if constexpr (prefetches) load(i + threads.stride(), own);
            if constexpr (!isOneShot) {
              forEachPack(
                  [&](int k, std::uint32_t pack) { call.broadcast(results, slot(item.index, pack), h[k], order); });
            }
          } else {
            receiveRow(call, item, h);
          }
        }
        if constexpr (!prefetches) {
          for (Word128& weight : weights) weight = {};
          norm.loadWeights(threads, weights);
        }
        norm.template apply<config.quantisation>(threads, row, isPresent, h, weights);
      }
    }

    /// Sends this rank's contributions to the ranks that reduce them.
    template <class Call>
    MSCCLPP_INLINE void sendRows(const Call& call, const OwnRow& own, int order) const {
      if constexpr (isOneShot) {
        Word128 words[n] = {};
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) words[i] = own.contribution[i];
        for (std::uint32_t row = threads.first(); row < count;) {
          if constexpr (!prefetches) loadContributions(row, true, words);
          forEachPack(
              [&](int i, std::uint32_t pack) { call.broadcast(contributions, slot(row, pack), words[i], order); });
          row += threads.stride();
          if constexpr (prefetches) loadContributions(row, row < count, words);
        }
      } else {
        for (std::uint32_t i = threads.first(); i < otherItems(); i += threads.stride()) {
          const Item item = otherItem(i);
          if (item.index >= owned(item.owner)) continue;
          const std::uint32_t row = rowOf(item.owner, item.index);
          forEachPack([&](int, std::uint32_t pack) {
            call.send(contributions, item.owner, slot(item.index, pack), contributionAt(row, pack));
          });
        }
      }
    }

    /// Reduces a row and adds the residual.
    template <class Call>
    MSCCLPP_INLINE void reduceRow(Call& call, std::uint32_t index, std::uint32_t row, OwnRow& own,
                                  Word128 (&h)[n]) const {
      if constexpr (!prefetches) own = {};  // nothing is kept in registers from row to row
      if constexpr (loadsResidualEarly && !prefetches) loadResiduals(row, true, own.residual);
      MSCCLPP_NO_UNROLL  // one copy of the wait: fewer registers, fewer instructions to fetch
          for (int first = 0; first < n; first += batch) {
        Index slots[batch];
        bool isPresent[batch];
        Word128 words[batch] = {};
        MSCCLPP_UNROLL
        for (int k = 0; k < batch; ++k) {
          const std::uint32_t pack = threads.pack(first + k);
          slots[k] = slot(index, pack);
          isPresent[k] = pack < rowPacks;
          if constexpr (prefetches) {
            MSCCLPP_UNROLL
            for (int i = 0; i < n; ++i) {
              if (i == first + k) words[k] = own.contribution[i];
            }
          } else if (isPresent[k]) {
            words[k] = contributionAt(row, pack);
          }
        }
        if (!isPresent[0]) break;
        call.template sum<T, allRanksAtOnce>(contributions, slots, isPresent, words);
        if constexpr (inMemory) {
          for (int k = 0; k < batch; ++k) h[first + k] = words[k];
        } else {
          MSCCLPP_UNROLL
          for (int i = 0; i < n; ++i) {
            MSCCLPP_UNROLL
            for (int k = 0; k < batch; ++k) {
              if (i == first + k) h[i] = words[k];
            }
          }
        }
      }
      if (arrays.residual == nullptr) return;
      forEachPack([&](int i, std::uint32_t pack) {
        const auto residual = fromWord<T>(loadsResidualEarly ? own.residual[i] : residualAt(row, pack));
        h[i] = toWord<T>(norm::addResidual<T>(fromWord<T>(h[i]), residual));
      });
    }
    template <class Call>
    MSCCLPP_INLINE void receiveRow(Call& call, const Item& item, Word128 (&h)[n]) const {
      Index slots[n];
      bool isPresent[n];
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const std::uint32_t pack = threads.pack(i);
        slots[i] = slot(item.index, pack);
        isPresent[i] = pack < rowPacks;
      }
      if (isPresent[0]) call.template receive<n>(results, item.owner, slots, isPresent, h);
    }
  };
};
static_assert(Collective<AllReduceRmsNorm<bf16, AllReduceRmsNormConfig{}>>);

/// The better pattern for so many bytes of contribution (rows x hidden x sizeof(T)) of each rank: one-shot while a
/// second hop takes longer than sending everything to all. The threshold is that of the all-reduce for 4 GPUs and
/// NVSwitch; the bytes that one-shot sends grow with the ranks.
MSCCLPP_HOST_DEVICE constexpr Pattern betterRmsNormPattern(std::size_t bytes, int ranks) {
  constexpr std::size_t threshold = std::size_t{160} * 1024 * 3;  // all that a rank sends in one shot
  return ranks <= 2 || bytes * static_cast<std::size_t>(ranks - 1) <= threshold ? Pattern::OneShot : Pattern::TwoShot;
}

}  // namespace mscclpp
