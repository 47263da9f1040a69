// All-reduce: every rank contributes `count` elements and gets their reduction, bitwise the same on every rank and in
// every run.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/operator_args.hpp"
#include "mscclpp/collective/output_args.hpp"
#include "mscclpp/collective/session.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// An all-reduce of elements T under operator Op, made of the stages that config names. If Op has state, args.op is its
/// value.
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
struct AllReduce : OverSession<T, config.common(), config.pattern == Pattern::OneShot ? 1 : 2, 3, SlotReuse::ByData> {
  static_assert(ReductionOperator<Op, Accumulator<T>>,
                "Op must have combine() and finish() for Accumulator<T>: see ReductionOperator in basic/concepts.hpp");
  static_assert(!isPipelined(config.protocol) || config.pattern == Pattern::TwoShot,
                "Protocol::Simple requires Pattern::TwoShot: a tile pipeline has no one-shot form");

  static_assert(config.link == Link::Slots || isPipelined(config.protocol), "Link::Outputs requires Protocol::Simple");

  using Base = typename AllReduce::OverSession;
  using Operator = Op;
  /// Those of Base, `outputs` with Link::Outputs, and `op` if Op has state.
  using Args = ArgsWithOperator<ArgsWithOutputs<typename Base::Args, config.link, config.ranks>, Op>;
  using typename Base::Scratch;
  static constexpr AllReduceConfig configuration = config;

  /// The scratch for messages of up to `maxCount` elements. Protocol::Simple: for messages of any size; shape gives the
  /// number of blocks, tile size and slots.
  static MSCCLPP_HOST_DEVICE Scratch scratchFor(std::size_t maxCount, int ranks, const PipelineShape& shape = {}) {
    return Base::makeScratch(arrayPacks(maxCount, ranks), ranks, shape);
  }

  /// Whether a launch of this shape can run with these arguments: the message fits in the scratch, and a pipeline has
  /// the number of blocks that its scratch was made for. launch() checks it; a user's kernel that calls run() must.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return Base::fits(args, arrayPacks(args.count, args.team.size()), shape) && acceptsOperator<Op>(args);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<AllReduce>(grid, args, TraceId::AllReduce, [&](auto& session) {
      constexpr int inputs = 0;
      const Op op = operatorOf<Op>(args);
      if constexpr (config.pattern == Pattern::OneShot) {
        const WholeMessage<T, typename Base::Index> message(args.count);
        return session.run(ownSlice(message) | from(source) | share<inputs>() | reduce<inputs>(op) | into(sink));
      } else if constexpr (config.link == Link::Outputs) {
        const EvenSlices<T, typename Base::Index> slices(args.count, args.team.size());
        return session.run(
            eachPeer(slices) | from(source) | send<inputs>(),
            ownSlice(slices) | from(source) | reduce<inputs>(op) | storeToPeers<T>(args.outputs) | into(sink),
            eachPeer(slices) | awaitStores());
      } else {
        constexpr int results = 1;
        const EvenSlices<T, typename Base::Index> slices(args.count, args.team.size());
        return session.run(eachPeer(slices) | from(source) | send<inputs>(),
                           ownSlice(slices) | from(source) | reduce<inputs>(op) | share<results>() | into(sink),
                           eachPeer(slices) | receive<results>() | into(sink));
      }
    });
  }

 private:
  /// Packs of the longest array for a message of `count` elements.
  static MSCCLPP_HOST_DEVICE std::size_t arrayPacks(std::size_t count, int ranks) {
    const std::size_t packs = ceilDivide(count, packSize<T>);
    return config.pattern == Pattern::OneShot ? packs : EvenSlices<T, std::size_t>::longestSlice(packs, ranks);
  }
};

}  // namespace mscclpp
