// Reduce-scatter: every rank contributes args.count elements for each rank, and gets the reduction of those for it.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/collective.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/collective/equal_counts.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/collective/offset_access.hpp"
#include "mscclpp/collective/operator_args.hpp"
#include "mscclpp/collective/stages.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A reduce-scatter of elements T under operator Op. args.count: the elements of a rank's result, any number; every
/// rank contributes as many for each rank. If Op has state, args.op is its value.
///
/// run() is called by every thread of every block of `grid`, on every rank, with the same count, numbers of blocks and
/// threads, and config. Calls on the same scratch must not overlap in time (use one stream). The reduction is in rank
/// order, in Accumulator<T>, and rounds once: the bits are the same in every run and those of an all-reduce. With zero
/// elements it returns at once. A wait that fails leaves its record in args.wait's control block; the output is then
/// meaningless.
///
/// source(first, valid) is called once for each pack of each part of this rank's contribution; first is an index in
/// their concatenation: element i of the part for rank r has index r * args.count + i. sink(first, pack, valid) is
/// called once for each pack of this rank's result; first is an index in it, from 0. So `first` is a multiple of
/// packSize<T> for the sink only.
///
/// In place: the result may replace this rank's part of the input, output == input + rank * args.count. Otherwise input
/// and output do not overlap.
template <class T, class Op, CollectiveConfig config>
struct ReduceScatter : EqualCounts<T, config.common(), SlotReuse::ByData> {
  static_assert(ReductionOperator<Op, Accumulator<T>>,
                "Op must have combine() and finish() for Accumulator<T>: see ReductionOperator in basic/concepts.hpp");

  using Base = EqualCounts<T, config.common(), SlotReuse::ByData>;
  using Operator = Op;
  /// Those of Base, and `op` if Op has state.
  using Args = ArgsWithOperator<typename Base::Args, Op>;

  /// As in Base; and whether the operator is valid.
  static MSCCLPP_HOST_DEVICE bool accepts(const Args& args, LaunchShape shape) {
    return Base::accepts(args, shape) && acceptsOperator<Op>(args);
  }

  /// Returns whether all waits of the calling thread succeeded.
  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    Base::template checkSourceAndSink<Source, Sink>();
    return Base::template withSession<ReduceScatter>(grid, args, TraceId::ReduceScatter, [&](auto& session) {
      constexpr int inputs = 0;
      const Op op = operatorOf<Op>(args);
      const RankSlices<T, typename Base::Index> slices(args.count);
      const WholeMessage<T, typename Base::Index> result(args.count);
      const OffsetSource<Source> ownPart(source, static_cast<std::size_t>(args.team.rank()) * args.count);
      return session.run(eachPeer(slices) | from(source) | send<inputs>(),
                         ownSlice(result) | from(ownPart) | reduce<inputs>(op) | into(sink));
    });
  }
};
static_assert(Collective<ReduceScatter<float, Sum, CollectiveConfig{}>>);

}  // namespace mscclpp
