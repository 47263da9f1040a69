// All-reduce: every rank contributes `count` elements and every rank gets their reduction, bitwise the same everywhere and in every run.
#pragma once

#include "mscclpp/basic/access.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
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

/// What every rank hands to an all-reduce, by value: plain data, fit for kernel parameters and __constant__ memory. The host part fills it
/// (Collectives); all ranks pass the same count.
template <int Ranks>
struct AllReduceArgs {
  Team<Ranks> team;
  Window<Ranks> window;       ///< the scratch window, its bytes at first as `initialByte` of the protocol says
  EpochWords epochs;          ///< local; Schedule::Whole starts them at 1, Schedule::Pipelined at 0
  std::size_t capacityPacks;  ///< Schedule::Whole: packs of the longest message
  PipelineScratch pipeline;   ///< Schedule::Pipelined
  std::size_t count;          ///< elements of this message
  BoundedWait wait;
};

/// An all-reduce of elements T under operator Op, made of the stages that config names.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, the same number of blocks and threads, and the same
/// config; calls on one scratch are ordered (one stream, or otherwise one after the other). Input and output may be the same memory or overlap elsewhere not
/// at all. The reduction goes in rank order in Accumulator<T> and rounds once, whatever the config. Zero elements: returns at once on all ranks.
/// A wait that fails leaves its record in args.wait's control block, and the output is then meaningless.
///
/// A grid with a trace (basic/trace.hpp) records the call and its stages.
///
/// source(first, valid) and sink(first, pack, valid) are called once for each pack (basic/access.hpp); by which thread depends on the config.
template <class T, class Op, AllReduceConfig config>
struct AllReduce {
  static_assert(ReductionOperator<Op, Accumulator<T>>,
                "Op must offer combine and finish on Accumulator<T>: see basic/concepts.hpp");
  static_assert(
      (config.schedule == Schedule::Pipelined) == (config.protocol == Protocol::Simple),
      "packets (LL8, LL16, LL128, Sentinel) go with Schedule::Whole, Protocol::Simple with Schedule::Pipelined");
  static_assert(config.schedule == Schedule::Whole || config.pattern == Pattern::TwoShot,
                "a pipelined all-reduce is two-shot");

  using Element = T;
  using Operator = Op;
  using Args = AllReduceArgs<config.ranks>;
  static constexpr AllReduceConfig configuration = config;
  /// Threads that a block of the generic kernel may have: 16 warps, and a control warp where the schedule uses one.
  static constexpr int maxBlockThreads = config.schedule == Schedule::Pipelined ? 544 : 512;

  /// Whether a launch of that shape can run with these arguments: the message fits in the scratch, and a pipeline has the blocks that its rings were made
  /// for. `launch` asks; whoever calls run() from a kernel of their own does.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    if constexpr (config.schedule == Schedule::Pipelined) {
      return shape.blocks == args.pipeline.blocks && args.pipeline.slots >= 2 * config.lookahead;
    } else {
      return ceilDivide(args.count, packSize<T>) <= args.capacityPacks;
    }
  }

  template <Grid GridType, class Source, class Sink>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
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
