// An all-reduce that sends fp8 instead of its elements' type: half the bytes of 16-bit types, for some error.
#pragma once

#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/collective/call_check.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/packet_call.hpp"
#include "mscclpp/fusion/quantise.hpp"

namespace mscclpp {

/// The choices of an AllReduceFp8.
struct AllReduceFp8Config {
  Protocol protocol = Protocol::Sentinel;  ///< or LL16, LL8
  int ranks = 0;                           ///< > 0: fixed at compile time, so that loops over peers are unrolled
};

/// A sum over the ranks of args.count elements T (bf16, f16, float), any number, in two hops. What a rank sends is
/// quantised to fp8 e4m3 with one fp32 scale for each group of 128 elements: 132 bytes a group. The owner of a group
/// adds the contributions in fp32, in rank order, its own unquantised; the sum is quantised again and shared, and every
/// rank, the owner too, outputs what was shared: all ranks get the same bits in every run.
///
/// The error of an element is at most e + (S + e) / 28, plus the rounding to T and of fp32. S is the largest magnitude
/// of the exact sum in the element's group; e is the sum, over the ranks but the owner, of 1/28 of the largest
/// magnitude that the rank contributes to the group. 1/28 is half the distance of e4m3's values below the largest,
/// 448. Groups of 128 spend 3% of the bytes on scales, and are a common block of quantised models. A group of which an
/// element is infinite or NaN on a rank, or whose sum overflows fp32, is NaN as a whole.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, numbers of blocks and
/// threads, and config. Calls on the same scratch must not overlap in time. With zero elements it returns at once. A
/// wait that fails leaves its record in args.wait's control block; the output is then meaningless.
///
/// source(first, valid) and sink(first, pack, valid) are called once for each pack. In place: input == output.
template <class T, AllReduceFp8Config config>
struct AllReduceFp8 {
  using Element = T;
  using Scratch = PacketSlots<typename PackProtocolOf<config.protocol>::Type, 2, SlotReuse::ByData>;
  using Args = CollectiveArgs<config.ranks, Scratch>;
  static constexpr int maxBlockThreads = 512;

  /// The scratch for calls of up to `count` elements.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t count, int ranks) {
    return {ceilDivide(ceilDivide(count, unitElements), static_cast<std::size_t>(ranks)) * unitPackets, ranks};
  }
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return shape.blocks >= 1 && shape.blocks <= maxBlocks && args.count <= maxElements &&
           scratchFor(args.count, args.team.size()).arrayPacks <= args.scratch.arrayPacks;
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>,
                  "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread; see Grid in "
                  "basic/concepts.hpp");
    static_assert(SourceOf<Source, T>, "source must be a SourceOf<T>, such as ArraySource<T>(data)");
    static_assert(SinkOf<Sink, T>, "sink must be a SinkOf<T>, such as ArraySink<T>(data)");
    if (args.count == 0) return true;
    if constexpr (checked) {
      if (!checkArguments<AllReduceFp8>(grid, args) || !compareCalls<AllReduceFp8>(grid, args)) return false;
    }
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, TraceId::AllReduce, args.count * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    PacketCall call(grid, args, wait);
    if (call.hasStopped()) return false;
    const Units<GridType, decltype(call)> units{grid, grid.warp(), args.count, call};
    units.run(source, sink);
    return call.end([&](int array, int from) {
      if (from == args.team.rank()) return 0u;
      // Unused slots at the end of a shorter last unit are never written.
      return units.owned(array == 0 ? args.team.rank() : from) * unitPackets;
    });
  }

 private:
  static_assert(sizeof(T) == 2 || detail::SameAs<T, float>, "T must be bf16, f16 or float");

  /// A warp works on units of 512 elements: 32 packets with 16 values each, and one with the scales of the 4 groups.
  static constexpr std::uint32_t unitWords = 32;
  static constexpr std::uint32_t wordElements = 16;
  static constexpr std::uint32_t groupWords = quantisationGroup / wordElements;
  static constexpr std::uint32_t unitPackets = unitWords + 1;
  static constexpr std::size_t unitElements = unitWords * wordElements;
  static constexpr std::size_t maxElements = std::size_t{1} << 34;
  static constexpr float largest = 448.0f;

  template <class GridType, class Call>
  struct Units {
    static MSCCLPP_HOST_DEVICE const GridType& someGrid();  // not defined
    using Warp = decltype(someGrid().warp());
    static constexpr int width = Warp::width;
    static_assert(width <= static_cast<int>(unitWords) && (width & (width - 1)) == 0, "a warp has 1, 2, ... 32 lanes");
    /// Words of a unit for each lane: lane l has words l, l + width, ...
    static constexpr int n = static_cast<int>(unitWords) / width;
    static constexpr int contributions = 0;
    static constexpr int results = 1;

    const GridType& grid;
    const Warp warp;
    const std::size_t count;
    Call& call;

    struct Values {
      float at[n][wordElements];
    };
    struct Quantised {
      Word128 words[n];
      Word128 scales;  ///< of the groups of the unit; in all lanes
    };

    MSCCLPP_INLINE std::uint32_t units() const {
      return static_cast<std::uint32_t>((count + unitElements - 1) / unitElements);
    }
    /// Units that a rank reduces: every size-th from `rank` on.
    MSCCLPP_INLINE std::uint32_t owned(int rank) const {
      const auto ranks = static_cast<std::uint32_t>(call.team().size());
      const auto first = static_cast<std::uint32_t>(rank);
      return units() > first ? (units() - first + ranks - 1) / ranks : 0;
    }
    MSCCLPP_INLINE std::size_t firstElement(int owner, std::uint32_t index) const {
      const auto ranks = static_cast<std::uint32_t>(call.team().size());
      return (index * ranks + static_cast<std::uint32_t>(owner)) * unitElements;
    }
    MSCCLPP_INLINE std::uint32_t wordOf(int i) const { return static_cast<std::uint32_t>(i * width + warp.rank()); }
    MSCCLPP_INLINE bool hasWord(std::size_t first, int i) const { return first + wordOf(i) * wordElements < count; }

    /// Calls f(owner, index) for the warp's units of other ranks, in an order that alternates between them.
    template <class F>
    MSCCLPP_INLINE void forEachOther(const F& f) const {
      const auto peers = static_cast<std::uint32_t>(call.team().size() - 1);
      for (std::uint32_t i = firstItem(); i < owned(0) * peers; i += stride()) {
        const int owner = call.team().peer(static_cast<int>(i % peers));
        if (i / peers < owned(owner)) f(owner, i / peers);
      }
    }
    MSCCLPP_INLINE std::uint32_t firstItem() const {
      return static_cast<std::uint32_t>(grid.warpIndex() * grid.blockCount() + grid.blockIndex());
    }
    MSCCLPP_INLINE std::uint32_t stride() const {
      return static_cast<std::uint32_t>(grid.warpCount() * grid.blockCount());
    }

    template <class Source, class Sink>
    MSCCLPP_INLINE void run(const Source& source, const Sink& sink) const {
      const int order = call.rotation();
      forEachOther([&](int owner, std::uint32_t index) {
        const std::size_t first = firstElement(owner, index);
        const Quantised sent = quantised(load(source, first));
        forEachPacket(first, sent, [&](std::uint32_t packet, const Word128& word) {
          call.send(contributions, owner, index * unitPackets + packet, word);
        });
      });
      for (std::uint32_t index = firstItem(); index < owned(call.team().rank()); index += stride()) {
        const std::size_t first = firstElement(call.team().rank(), index);
        const Quantised sum = quantised(reduce(index, first, load(source, first)));
        if (call.failed()) continue;
        forEachPacket(first, sum, [&](std::uint32_t packet, const Word128& word) {
          call.broadcast(results, index * unitPackets + packet, word, order);
        });
        store(sink, first, dequantised(sum));
      }
      forEachOther([&](int owner, std::uint32_t index) {
        const std::size_t first = firstElement(owner, index);
        store(sink, first, dequantised(receive(results, owner, index, first)));
      });
    }

    template <class Source>
    MSCCLPP_INLINE Values load(const Source& source, std::size_t first) const {
      Values values;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        MSCCLPP_UNROLL
        for (int p = 0; p < static_cast<int>(wordElements) / packSize<T>; ++p) {
          const std::size_t at = first + wordOf(i) * wordElements + static_cast<std::size_t>(p * packSize<T>);
          const int valid = validAt(at);
          const Pack<T> pack = valid > 0 ? source(at, valid) : fromWord<T>(Word128{0, 0});
          MSCCLPP_UNROLL
          for (int k = 0; k < packSize<T>; ++k) {
            values.at[i][p * packSize<T> + k] = k < valid ? widen<T>(pack[k]) : 0.0f;
          }
        }
      }
      return values;
    }
    template <class Sink>
    MSCCLPP_INLINE void store(const Sink& sink, std::size_t first, const Values& values) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        MSCCLPP_UNROLL
        for (int p = 0; p < static_cast<int>(wordElements) / packSize<T>; ++p) {
          const std::size_t at = first + wordOf(i) * wordElements + static_cast<std::size_t>(p * packSize<T>);
          const int valid = validAt(at);
          if (valid <= 0) continue;
          Pack<T> pack;
          MSCCLPP_UNROLL
          for (int k = 0; k < packSize<T>; ++k) {
            pack[k] = narrow<T>(arch::canonicalNan(values.at[i][p * packSize<T> + k]));
          }
          sink(at, pack, valid);
        }
      }
    }
    MSCCLPP_INLINE int validAt(std::size_t at) const {
      return at >= count ? 0 : count - at < packSize<T> ? static_cast<int>(count - at) : packSize<T>;
    }

    /// The lane's scale of its i-th word.
    static MSCCLPP_INLINE float scaleOf(const Word128& scales, std::uint32_t word) {
      const std::uint64_t pair = word / groupWords < 2 ? scales.lo : scales.hi;
      return arch::bitCast<float>(static_cast<std::uint32_t>(word / groupWords % 2 == 0 ? pair : pair >> 32));
    }

    MSCCLPP_INLINE Quantised quantised(const Values& values) const {
      std::uint32_t most[n];
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        most[i] = 0;
        MSCCLPP_UNROLL
        for (std::uint32_t k = 0; k < wordElements; ++k) {
          most[i] = quantise::larger(most[i], quantise::magnitude(values.at[i][k]));
        }
      }
      constexpr int groups = static_cast<int>(unitWords / groupWords);
      std::uint32_t scales[groups];
      MSCCLPP_UNROLL
      for (int g = 0; g < groups; ++g) {
        constexpr int group = static_cast<int>(groupWords), lanes = width < group ? width : group;
        std::uint32_t magnitude = 0;
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) {  // words of the group that this lane has
          const bool isInGroup = wordOf(i) / groupWords == static_cast<std::uint32_t>(g);
          if (isInGroup) magnitude = quantise::larger(magnitude, most[i]);
        }
        magnitude = maxOverLanes<lanes>(warp, magnitude);
        const std::uint32_t bits = arch::bitCast<std::uint32_t>(quantise::scaleFor(magnitude, largest));
        scales[g] = width < group ? bits : warp.shuffle(bits, g * group % width);
      }
      Quantised result;
      result.scales = {static_cast<std::uint64_t>(scales[1]) << 32 | scales[0],
                       static_cast<std::uint64_t>(scales[3]) << 32 | scales[2]};
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const float inverse = arch::reciprocal(scaleOf(result.scales, wordOf(i)));
        Pack<f8e4m3> pack;
        MSCCLPP_UNROLL
        for (std::uint32_t k = 0; k < wordElements; ++k) {
          pack[static_cast<int>(k)] = quantise::round<f8e4m3>(values.at[i][k] * inverse);
        }
        result.words[i] = toWord<f8e4m3>(pack);
      }
      return result;
    }
    MSCCLPP_INLINE Values dequantised(const Quantised& unit) const {
      Values values;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        const auto pack = fromWord<f8e4m3>(unit.words[i]);
        const float scale = scaleOf(unit.scales, wordOf(i));
        MSCCLPP_UNROLL
        for (std::uint32_t k = 0; k < wordElements; ++k) {
          values.at[i][k] = widen<f8e4m3>(pack[static_cast<int>(k)]) * scale;
        }
      }
      return values;
    }

    /// Calls f(packet, word) for the packets of a unit that this lane sends; lane 0 sends the scales.
    template <class F>
    MSCCLPP_INLINE void forEachPacket(std::size_t first, const Quantised& unit, const F& f) const {
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        if (hasWord(first, i)) f(wordOf(i), unit.words[i]);
      }
      if (warp.rank() == 0) f(unitWords, unit.scales);
    }
    /// Waits for a unit from a rank.
    MSCCLPP_INLINE Quantised receive(int array, int from, std::uint32_t index, std::size_t first) const {
      std::uint32_t slots[n + 1];
      bool isPresent[n + 1];
      Word128 words[n + 1] = {};
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) {
        slots[i] = index * unitPackets + wordOf(i);
        isPresent[i] = hasWord(first, i);
      }
      slots[n] = index * unitPackets + unitWords;
      isPresent[n] = warp.rank() == 0;
      call.template receive<n + 1>(array, from, slots, isPresent, words);
      Quantised result;
      MSCCLPP_UNROLL
      for (int i = 0; i < n; ++i) result.words[i] = words[i];
      const auto fromFirst = [&](std::uint64_t half) {
        const std::uint32_t low = warp.shuffle(static_cast<std::uint32_t>(half), 0);
        const std::uint32_t high = warp.shuffle(static_cast<std::uint32_t>(half >> 32), 0);
        return static_cast<std::uint64_t>(high) << 32 | low;
      };
      result.scales.lo = fromFirst(words[n].lo);
      result.scales.hi = fromFirst(words[n].hi);
      return result;
    }
    /// The sum over the ranks of a unit that this rank owns.
    MSCCLPP_INLINE Values reduce(std::uint32_t index, std::size_t first, const Values& own) const {
      Values sum = {};
      for (int rank = 0; rank < call.team().size(); ++rank) {
        const bool isOwn = rank == call.team().rank();
        Values term = own;
        if (!isOwn) term = dequantised(receive(contributions, rank, index, first));
        MSCCLPP_UNROLL
        for (int i = 0; i < n; ++i) {
          MSCCLPP_UNROLL
          for (std::uint32_t k = 0; k < wordElements; ++k) {
            sum.at[i][k] = rank == 0 ? term.at[i][k] : sum.at[i][k] + term.at[i][k];
          }
        }
      }
      return sum;
    }
  };
};
static_assert(Collective<AllReduceFp8<bf16, AllReduceFp8Config{}>>);

}  // namespace mscclpp
