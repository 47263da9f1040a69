// All-reduce: every rank contributes `count` elements and gets their reduction, bitwise the same on every rank and in
// every run.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/packet_session.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/collective/tile_pipeline.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// An all-reduce of elements T under operator Op, made of the stages that config names.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, numbers of blocks and
/// threads, and config. Calls on the same scratch must not overlap in time (use one stream). Input and output are the
/// same memory or do not overlap. The reduction is in rank order, in Accumulator<T>, and rounds once, whatever the
/// config. With zero elements it returns at once. A wait that fails leaves its record in args.wait's control block; the
/// output is then meaningless.
///
/// A grid with a trace (basic/trace.hpp) records the call and its stages.
///
/// source(first, valid) and sink(first, pack, valid) are called once for each pack (basic/source_sink.hpp); which
/// thread calls them depends on the config.
template <class T, class Op, AllReduceConfig config>
struct AllReduce {
  static_assert(ReductionOperator<Op, Accumulator<T>>,
                "Op must have combine() and finish() for Accumulator<T>: see ReductionOperator in basic/concepts.hpp");
  static_assert(
      (config.schedule == Schedule::Pipelined) == (config.protocol == Protocol::Simple),
      "LL8, LL16, LL128 and Sentinel require Schedule::Unpipelined; Protocol::Simple requires Schedule::Pipelined");
  static_assert(config.schedule == Schedule::Unpipelined || config.pattern == Pattern::TwoShot,
                "Schedule::Pipelined requires Pattern::TwoShot");

  using Element = T;
  using Operator = Op;
  static constexpr AllReduceConfig configuration = config;
  /// The largest number of threads per block: 16 warps, and a control warp if the schedule uses one.
  static constexpr int maxBlockThreads = config.schedule == Schedule::Pipelined ? 544 : 512;

 private:
  static constexpr bool isPipelined = config.schedule == Schedule::Pipelined;
  static constexpr int arrays = config.pattern == Pattern::OneShot ? 1 : 2;
  static constexpr int stages = 3;
  /// The arrays: what ranks contribute, and the results of a two-shot.
  static constexpr int inputs = 0;
  static constexpr int results = 1;
  /// The result of every rank depends on the input of every rank.
  static constexpr SlotReuse reuse = SlotReuse::ByData;

  template <bool pipelined, class = void>
  struct ScratchOf {
    using Type = TileRings<arrays, reuse>;
  };
  template <class Unused>
  struct ScratchOf<false, Unused> {
    using Type = PacketSlots<typename PackProtocolOf<config.protocol>::Type, arrays, reuse>;
  };

 public:
  /// The layout of the window: PacketSlots, or TileRings for Schedule::Pipelined.
  using Scratch = typename ScratchOf<isPipelined>::Type;
  using Args = CollectiveArgs<config.ranks, Scratch>;

  /// The scratch for messages of up to `maxCount` elements. Schedule::Pipelined: for messages of any size; shape gives
  /// the number of blocks, tile size and slots.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, int ranks,
                                                [[maybe_unused]] const PipelineShape& shape = {}) {
    if constexpr (isPipelined) {
      return {shape.tilePacks, ranks, shape.blocks, shape.slots};
    } else {
      return {arrayPacks(ceilDivide(maxCount, packSize<T>), ranks), ranks};
    }
  }

  /// Whether a launch of this shape can run with these arguments: the message fits in the scratch, and a pipeline has
  /// the number of blocks that its scratch was made for. launch() checks it; a user's kernel that calls run() must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    if constexpr (isPipelined) {
      return shape.blocks == args.scratch.blocks && args.scratch.suffices(config.lookahead, stages);
    } else {
      return arrayPacks(ceilDivide(args.count, packSize<T>), args.team.size()) <= args.scratch.arrayPacks;
    }
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    static_assert(Grid<GridType>,
                  "grid must be a Grid: gpu::Grid() in a kernel, cpu::SerialGrid() on a CPU thread; see Grid in "
                  "basic/concepts.hpp");
    static_assert(
        SourceOf<Source, T>,
        "source must be a const callable Pack<T>(std::size_t first, int valid), such as ArraySource<T>(data); "
        "see SourceOf in basic/source_sink.hpp");
    static_assert(SinkOf<Sink, T>,
                  "sink must be a const callable void(std::size_t first, const Pack<T>& result, int valid), such as "
                  "ArraySink<T>(data); see SinkOf in basic/source_sink.hpp");
    if (args.count == 0) return true;
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, TraceId::AllReduce, args.count * sizeof(T));
    auto wait = tracedWait(args.wait, trace);
    if constexpr (isPipelined) {
      auto session = makeTilePipeline<config.lookahead>(grid, args, wait, trace);
      return runStages(session, args, source, sink);
    } else {
      PacketSession session(grid, args, wait, trace);
      return runStages(session, args, source, sink);
    }
  }

 private:
  /// Packs of the longest array for a message of `packs` packs.
  static MSCCLPP_HOST_DEVICE std::size_t arrayPacks(std::size_t packs, int ranks) {
    return config.pattern == Pattern::OneShot ? packs : EvenSlices<T, std::size_t>::longestSlice(packs, ranks);
  }

  template <class Session, class Source, class Sink>
  static MSCCLPP_INLINE bool runStages(Session& session, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    using Index = typename Session::Index;
    if constexpr (config.pattern == Pattern::OneShot) {
      const WholeMessage<T, Index> message(args.count);
      return session.run(ownSlice(message) | from(source) | share<inputs>() | reduce<inputs, Op>() | into(sink));
    } else {
      const EvenSlices<T, Index> slices(args.count, args.team.size());
      return session.run(eachPeer(slices) | from(source) | send<inputs>(),
                         ownSlice(slices) | from(source) | reduce<inputs, Op>() | share<results>() | into(sink),
                         eachPeer(slices) | receive<results>() | into(sink));
    }
  }
};

}  // namespace mscclpp
