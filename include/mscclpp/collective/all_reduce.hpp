// All-reduce: every rank contributes `count` elements and gets their reduction, bitwise the same on every rank and in
// every run.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/collective/all_reduce_packets.hpp"
#include "mscclpp/collective/all_reduce_pipelined.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// The arguments of an all-reduce, passed by value: plain data for kernel parameters or __constant__ memory. The host
/// class Collectives fills it in. All ranks pass the same count.
template <int Ranks>
struct AllReduceArgs {
  Team<Ranks> team;
  Window<Ranks> window;       ///< the scratch, every byte initialised to the protocol's `initialByte`
  EpochWords epochs;          ///< local; initialised to 1 for Schedule::Unpipelined, to 0 for Schedule::Pipelined
  std::size_t capacityPacks;  ///< Schedule::Unpipelined: packs of the longest message
  PipelineScratch pipeline;   ///< Schedule::Pipelined
  std::size_t count;          ///< elements of this message
  BoundedWait wait;
};

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
  using Args = AllReduceArgs<config.ranks>;
  static constexpr AllReduceConfig configuration = config;
  /// The largest number of threads per block: 16 warps, and a control warp if the schedule uses one.
  static constexpr int maxBlockThreads = config.schedule == Schedule::Pipelined ? 544 : 512;

  /// Whether a launch of this shape can run with these arguments: the message fits in the scratch, and a pipeline has
  /// the number of blocks that its scratch was made for. launch() checks it; a user's kernel that calls run() must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    if constexpr (config.schedule == Schedule::Pipelined) {
      return shape.blocks == args.pipeline.blocks && args.pipeline.slots >= 2 * config.lookahead;
    } else {
      return ceilDivide(args.count, packSize<T>) <= args.capacityPacks;
    }
  }

  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
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
    if (args.count == 0) return;
    auto&& trace = traceOf(grid);
    const TraceSpan span(trace, TraceId::AllReduce, args.count * sizeof(T));
    if constexpr (config.schedule == Schedule::Pipelined) {
      AllReducePipelined<T, Op, config>::run(grid, args, source, sink);
    } else {
      AllReducePackets<T, Op, config>::run(grid, args, source, sink);
    }
  }
};

}  // namespace mscclpp
